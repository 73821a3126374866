// Attention without the matrix of scores: blocks of keys against blocks of queries, softmax as it goes.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

constexpr int64_t kQueryBlock = 32;  // whole vectors of every instruction set
constexpr int64_t kKeyBlock = 128;

constexpr int64_t whole_blocks(int64_t queries) { return (queries + kQueryBlock - 1) / kQueryBlock * kQueryBlock; }

// Where the rows of a head lie: [batch, head, position, width], or [batch, position, head, width].
struct HeadRows {
  int64_t batch, head, row;
};

struct AttentionContext {
  int64_t batch, shared, group, queries, keys, width, value_width;  // query heads: shared * group
  HeadRows q, k, v, out;
  bool copies;  // works on copies of blocks: rows far apart would meet in few places of the cache
  float scale;
  bool causal;
  uint32_t parts;
  int64_t query_chunks;    // forward: a head's queries are cut into so many items
  int64_t part_workspace;  // floats
};

}  // namespace harmonics::cpu
