// Attention over q8_0 caches by AMX tiles: integer products with exact sums.
//
// A query is quantised to 15-bit integers, scaled by its largest magnitude. The softmax weights of 64 keys, multiplied
// by the scales of a block of 32 values, are quantised likewise. The result of a query depends only on the query and
// the keys visible to it.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

constexpr int64_t kTileQueries = 8;        // queries per set; a set is multiplied at once
constexpr int64_t kMostTiledWidth = 1024;  // limit of the elements of a row

// Rows to prefetch.
struct RowsAhead {
  const char* const* rows;
  int64_t count, bytes;
};

// Arguments of scores[row * row_stride + key] for n keys.
struct TiledScores {
  const int8_t* queries;  // packed
  const float* units;     // scale of each row
  int64_t rows, width;
  const char* const* keys;
  int64_t n;
  float* scores;
  int64_t row_stride;
  RowsAhead ahead;
};

// Keys [from, to) of a block are visible to a query; the weights of the others are 0.
struct TiledQuery {
  int64_t from, to;
  bool fresh;  // stores the sums instead of adding to them; skipped if no key is visible
};

// Arguments of out[row] += sum of weights[row][key] * values[key] over the keys [begin, end) of a block of 128.
struct TiledValues {
  const float* weights;  // rows of 128
  const TiledQuery* seen;
  int64_t group;  // rows per query
  int64_t rows, width;
  const char* const* values;  // rows, from key `begin`
  int64_t begin, end;
  float* out;
  RowsAhead ahead;
};

struct EightBitTiles {
  void (*end)();  // on each thread, after the other functions
  // Quantises and packs query rows. `packed` has packed_query_bytes(), `units` a scale per row of whole sets.
  void (*pack_queries)(const float* q, int64_t rows, int64_t width, int8_t* packed, float* units);
  void (*scores)(const TiledScores& x);
  void (*values)(const TiledValues& x);
};

constexpr int64_t query_sets(int64_t rows) { return (rows + kTileQueries - 1) / kTileQueries; }
constexpr int64_t packed_query_bytes(int64_t rows, int64_t width) {
  return query_sets(rows) * 2 * kTileQueries * width;
}

// Returns the functions for this processor, or null. HARMONICS_TILES=off disables them.
const EightBitTiles* eight_bit_tiles();

namespace tiles {
extern const EightBitTiles eight_bits;
}

}  // namespace harmonics::cpu
