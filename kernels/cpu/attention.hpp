// Attention without the matrix of scores: blocks of keys against blocks of queries, softmax as it goes.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

constexpr int64_t kQueryBlock = 24;  // whole tiles of rows, and little beyond the diagonal of causal attention
constexpr int64_t kKeyBlock = 128;

struct AttentionContext {
  int64_t batch, shared, group, queries, keys, width, value_width;  // query heads: shared * group
  float scale;
  bool causal;
  uint32_t parts;
  int64_t query_chunks;    // forward: a head's queries are cut into so many items
  int64_t part_workspace;  // floats
};

}  // namespace harmonics::cpu
