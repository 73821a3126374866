// Attention with masks, and over a cache of keys and values whose valid length is known at run time.
//
// A query's result has the same bits whatever chunk of queries it comes in and whatever the capacity of the cache: its
// keys are visited in blocks from key 0 on, splits of four blocks are summed apart, and their sums are joined in order.
#pragma once

#include <cstdint>

#include "attention.hpp"
#include "eight_bit_tiles.hpp"

namespace harmonics::cpu {

constexpr int64_t kCacheBlock = 128, kCacheSplit = 512;  // keys
constexpr int64_t kMostTile = 256;                       // queries of an item
constexpr int64_t kFewRows = 8;  // queries of an item that read keys and values where they lie, whatever their type
constexpr uint32_t kNoBuffer = ~0u;

// A mask or bias: a row of keys for each query. Strides in elements; 0 where items or heads share it.
struct ScoreRows {
  uint32_t buffer;
  int64_t batch, head, row;
  bool given() const { return buffer != kNoBuffer; }
};

// Tables of the pages of each batch item, i32 [batch, entries]: keys and values lie in a pool of pages of `rows` rows.
struct Pages {
  uint32_t buffer;
  int64_t entries, rows, pool;  // pool: number of pages
  bool given() const { return buffer != kNoBuffer; }
};

// Sizes, and what becomes of a score.
struct SequenceAttention {
  int64_t batch, shared, group, queries, keys, width, value_width;  // query heads: shared * group
  HeadRows q, k, v, out;                                            // strides in elements
  bool causal;
  int64_t window;           // 0: none
  float scale, softcap;     // softcap 0: none
  uint32_t lengths, sinks;  // buffers
  ScoreRows mask, bias;     // bool, f32
  Pages pages;              // given: strides of a batch item in k and v are those of a page
};

enum class CacheType : uint32_t { f32, f16, q8_0 };

struct CachedAttentionContext : SequenceAttention {
  int64_t tile, tiles;  // queries of an item; items of a key and value head
  int64_t splits;       // of the cache
  bool apart;           // an item is one split, and a second phase joins them; otherwise it has all of them
  CacheType k_type, v_type;
  const EightBitTiles *k_tiles, *v_tiles;  // set: multiply the keys, the values
  bool few;                                // rows are read where they lie, with the next ones prefetched
  bool copy_k, copy_v;                     // copies a block's rows together first: they are read several times
  uint32_t out_buffer, lse, workspace;     // buffers
  uint32_t parts, merge_parts;
  int64_t part_workspace;  // floats
};

// Sums of a query over a split, in the workspace after those of the parts: largest score, sum, values.
constexpr int64_t partial_floats(const CachedAttentionContext& c) { return c.value_width + 2; }

// Gradient: q, k, v, out, lse, dout and the optional inputs -> dq, dk, dv, dbias?, dsinks?. Blocks of queries against
// blocks of keys; no score outlives its block.
struct SequenceGradientContext : SequenceAttention {
  uint32_t dq, dbias, dsinks, workspace;  // buffers; dk and dv follow dq
  int64_t bias_tables;                    // different [T, S] of the bias
  uint32_t parts, bias_parts;             // of key and value heads; of blocks of the bias' rows
  int64_t part_workspace;                 // floats, after four for each query
};

}  // namespace harmonics::cpu
