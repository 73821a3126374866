// Attention without storing the score matrix: an online softmax over blocks of keys for each block of queries.
#pragma once

#include <cstdint>

#include "isa.hpp"

namespace harmonics::cpu {

constexpr int64_t kQueryBlock = 32;  // a multiple of every instruction set's vector width
constexpr int64_t kKeyBlock = 128;
constexpr int64_t kGradientBlock = 64;  // gradient: queries per block, and keys per block

constexpr int64_t whole_blocks(int64_t queries) { return (queries + kQueryBlock - 1) / kQueryBlock * kQueryBlock; }

// Strides in elements, for [batch, head, position, width] or [batch, position, head, width]; `row`: of a position.
struct HeadRows {
  int64_t batch, head, row;
};

struct AttentionContext {
  int64_t batch, shared, group, queries, keys, width, value_width;  // query heads: shared * group
  HeadRows q, k, v, out;
  bool copies;      // copies blocks to contiguous memory: rows far apart can map to the same cache sets
  bool dense_rows;  // gradient: also copies the item's queries and output gradients, and the keys of each block
  float scale;
  bool causal;
  uint32_t parts;
  int64_t query_chunks;    // forward: chunks a head's queries are divided into
  int64_t part_workspace;  // floats
  int64_t ahead_every;     // prefetch distance: k-loop steps per cache line of the next head; 0: no prefetch
};

}  // namespace harmonics::cpu

HM_VECTOR_CODE(attention)
HM_VECTOR_CODE(attention_grad)
