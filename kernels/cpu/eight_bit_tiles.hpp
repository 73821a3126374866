// Attention over caches of q8_0 by the tile registers of AMX: products of whole numbers, summed exactly.
//
// A query is rounded to whole numbers of 15 bits, in units of its largest magnitude. Weights of 64 keys, times the
// scales of a block of 32 values, are rounded likewise. What a query gets depends on itself and on the keys that it
// sees alone.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

constexpr int64_t kTileQueries = 8;        // of a set, which is multiplied at once
constexpr int64_t kMostTiledWidth = 1024;  // elements of a row

// Rows that are read next.
struct RowsAhead {
  const char* const* rows;
  int64_t count, bytes;
};

// scores[row * row_stride + key] of n keys.
struct TiledScores {
  const int8_t* queries;  // packed
  const float* units;     // of their rows
  int64_t rows, width;
  const char* const* keys;
  int64_t n;
  float* scores;
  int64_t row_stride;
  RowsAhead ahead;
};

// Keys [from, to) of a block that a query sees; weights of the others are 0.
struct TiledQuery {
  int64_t from, to;
  bool fresh;  // sets the sums instead of adding to them; such a query is skipped if it sees no key
};

// out[row] += sum of weights[row][key] values[key], of a block of 128 keys of which [begin, end) exist.
struct TiledValues {
  const float* weights;  // rows of 128
  const TiledQuery* seen;
  int64_t group;  // rows of a query
  int64_t rows, width;
  const char* const* values;  // of the keys from `begin` on
  int64_t begin, end;
  float* out;
  RowsAhead ahead;
};

struct EightBitTiles {
  void (*end)();  // after the others, on each thread
  // Rounds rows of queries. `packed`: packed_query_bytes(); `units`: whole sets.
  void (*pack_queries)(const float* q, int64_t rows, int64_t width, int8_t* packed, float* units);
  void (*scores)(const TiledScores& x);
  void (*values)(const TiledValues& x);
};

constexpr int64_t query_sets(int64_t rows) { return (rows + kTileQueries - 1) / kTileQueries; }
constexpr int64_t packed_query_bytes(int64_t rows, int64_t width) {
  return query_sets(rows) * 2 * kTileQueries * width;
}

// For this processor, or null. HARMONICS_TILES=off disables them.
const EightBitTiles* eight_bit_tiles();

namespace tiles {
extern const EightBitTiles eight_bits;
}

}  // namespace harmonics::cpu
