// Attention over a cache of keys and values whose valid length is known at run time.
//
// A query's result has the same bits whatever chunk of queries it comes in and whatever the capacity of the cache: its
// keys are visited in blocks from key 0 on, splits of four blocks are summed apart, and their sums are joined in order.
#pragma once

#include <cstdint>

#include "attention.hpp"

namespace harmonics::cpu {

constexpr int64_t kCacheBlock = 128, kCacheSplit = 512;  // keys
constexpr int64_t kMostTile = 256;                       // queries of an item
constexpr uint32_t kNoBuffer = ~0u;

struct CachedAttentionContext {
  int64_t batch, shared, group, queries, keys, width, value_width;  // query heads: shared * group
  HeadRows q, k, v, out;                                            // strides in elements
  int64_t tile, tiles;                                              // queries of an item; items of a key and value head
  int64_t splits;                                                   // of the cache
  bool apart;           // an item is one split, and a second phase joins them; otherwise an item has all of them
  bool half_k, half_v;  // f16
  bool copy_k, copy_v;  // copies a block's rows together first: they are read several times
  bool causal;
  int64_t window;                       // 0: none
  float scale, softcap;                 // softcap 0: none
  uint32_t lengths, sinks;              // buffers
  uint32_t out_buffer, lse, workspace;  // buffers
  uint32_t parts, merge_parts;
  int64_t part_workspace;  // floats
};

// Sums of a query over a split, in the workspace after those of the parts: largest score, sum, values.
constexpr int64_t partial_floats(const CachedAttentionContext& c) { return c.value_width + 2; }

}  // namespace harmonics::cpu
