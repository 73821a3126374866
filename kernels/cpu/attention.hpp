// Attention without storing the score matrix: blocks of keys against blocks of queries with an online softmax.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

constexpr int64_t kQueryBlock = 32;  // a multiple of every instruction set's vector width
constexpr int64_t kKeyBlock = 128;
constexpr int64_t kGradientBlock = 64;  // queries and keys of a block of the gradient

constexpr int64_t whole_blocks(int64_t queries) { return (queries + kQueryBlock - 1) / kQueryBlock * kQueryBlock; }

// Layout of a head's rows: [batch, head, position, width] or [batch, position, head, width].
struct HeadRows {
  int64_t batch, head, row;
};

struct AttentionContext {
  int64_t batch, shared, group, queries, keys, width, value_width;  // query heads: shared * group
  HeadRows q, k, v, out;
  bool copies;      // copies blocks first: distant rows would map to the same cache sets
  bool dense_rows;  // gradient: copies queries, keys and output gradients too, all of an item
  float scale;
  bool causal;
  uint32_t parts;
  int64_t query_chunks;    // forward: chunks a head's queries are divided into
  int64_t part_workspace;  // floats
  int64_t ahead_every;     // steps of the depth per prefetched line of the next head; 0: no prefetch
};

}  // namespace harmonics::cpu
