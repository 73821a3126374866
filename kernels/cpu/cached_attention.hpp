// Attention with masks, and over a key-value cache whose valid length is known at run time.
//
// The bits of a query's result depend neither on the chunk of queries nor on the capacity of the cache: keys are
// visited in blocks from key 0, each split of four blocks is summed separately, and the splits are merged in order.
#pragma once

#include <cstdint>

#include "attention.hpp"
#include "eight_bit_tiles.hpp"

#ifndef HM_ISA
#include <string>

#include "site.hpp"
#endif

namespace harmonics::cpu {

constexpr int64_t kCacheBlock = 128, kCacheSplit = 512;  // keys
constexpr int64_t kMostTile = 256;                       // rows of queries per item
constexpr int64_t kFewRows = 8;  // up to this many query rows, keys and values of any type are read in place
constexpr uint32_t kNoBuffer = ~0u;

// A mask or bias: a row of keys for each query. Strides in elements; 0 if broadcast over batch items or heads.
struct ScoreRows {
  uint32_t buffer;
  int64_t batch, head, row;
  bool given() const { return buffer != kNoBuffer; }
};

// Page tables of the batch items, i32 [batch, entries], into a pool of pages of `rows` rows of keys and values.
struct Pages {
  uint32_t buffer;
  int64_t entries, rows, pool;  // pool: number of pages
  bool given() const { return buffer != kNoBuffer; }
};

// Shapes, and how a score is computed and masked.
struct SequenceAttention {
  int64_t batch, shared, group, queries, keys, width, value_width;  // query heads: shared * group
  HeadRows q, k, v, out;                                            // strides in elements
  bool causal;
  int64_t window;           // 0: none
  float scale, softcap;     // softcap 0: none
  uint32_t lengths, sinks;  // buffers
  ScoreRows mask, bias;     // bool, f32
  Pages pages;              // if given, k.batch and v.batch are the strides of a page
};

enum class CacheType : uint32_t { f32, f16, bf16, q8_0 };

struct CachedAttentionContext : SequenceAttention {
  int64_t tile, tiles;  // queries per item; items per key and value head
  int64_t splits;       // of the cache
  bool apart;           // one split per item, merged in a second phase; otherwise an item has all splits
  CacheType k_type, v_type;
  const EightBitTiles *k_tiles, *v_tiles;  // not null: AMX products with keys, with values
  bool few;                                // rows are read in place, and the next ones prefetched
  bool copy_k, copy_v;                     // packs the rows of a block first, since they are read several times
  uint32_t out_buffer, lse, workspace;     // buffers
  uint32_t parts, merge_parts;
  int64_t part_workspace;  // floats
};

// Partial result of a query over one split: largest score, sum of weights, weighted values. In the workspace after the
// blocks of the parts.
constexpr int64_t partial_floats(const CachedAttentionContext& c) { return c.value_width + 2; }

// Gradient: q, k, v, out, lse, dout and the optional inputs -> dq, dk, dv, dbias?, dsinks?. Scores are recomputed block
// by block and never stored.
struct SequenceGradientContext : SequenceAttention {
  uint32_t dq, dbias, dsinks, workspace;  // buffers; dk and dv follow dq
  int64_t bias_tables;                    // number of distinct [T, S] matrices of the bias
  uint32_t parts, bias_parts;             // divide the key and value heads; the blocks of the bias' rows
  int64_t part_workspace;                 // floats per part, after four floats for each query
};

#ifndef HM_ISA

// Returns the number of items to provide, so that this work can be divided into enough parts.
int64_t wanted_parts(double nanoseconds);
// Reads the sizes and the optional inputs, which follow the first `fixed` inputs. Appends the names of the optional
// inputs in order.
bool take_sequence(const Site& site, uint32_t fixed, SequenceAttention& c, std::vector<std::string>& names);
bool plan_cached_attention(const Site& site, hx_kernel& out);
bool plan_sequence_gradient(const Site& site, hx_kernel& out);

#endif

}  // namespace harmonics::cpu

HM_VECTOR_CODE(cached_attention)
HM_VECTOR_CODE(sequence_gradient)
