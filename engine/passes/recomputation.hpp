// Which results of the forward pass are computed again in the backward pass, so that they need not be kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Parts of a transformer's block, found by structure. Log-sum-exps, means and the sums of residual connections are kept
// in any case.
namespace parts {
constexpr uint32_t norm = 1;        // results of rms_norm and layer_norm
constexpr uint32_t qkv = 2;         // what leads from the linear maps before an attention to it
constexpr uint32_t attention = 4;   // its result
constexpr uint32_t activation = 8;  // silu, gelu ..., and the product with the other half
constexpr uint32_t ffn = 16;        // the linear maps before them
constexpr uint32_t branch = 32;     // all between two residual connections
constexpr uint32_t any = 63;
}  // namespace parts

struct Recomputation {
  uint32_t parts = 0;               // bits
  std::vector<std::string> scopes;  // patterns: results of nodes in matching scopes
  // In sixteenths: of all results within branches, those that cost least time for each byte.
  uint32_t cheapest = 0;
  bool automatic = false;  // as much as keeps a step's memory within the budget
  uint64_t budget = 0;     // bytes; 0: half of the machine's memory

  bool none() const { return parts == 0 && scopes.empty() && cheapest == 0 && !automatic; }
};

// The names of presets, without "none" and "auto".
const std::vector<std::string>& recomputation_presets();
// Reads "none", "attention,swiglu", "auto", "auto=2G" (bytes, with K, M, G or T) or patterns of scopes ("*/mlp").
// Throws ErrorKind::Usage.
Recomputation parse_recomputation(const std::string& text);

// The bits of `parts` that each node's results belong to.
std::vector<uint32_t> parts_of_blocks(const Program& program);
// By node: whether it is among the cheapest sixteenths of the nodes that have a part.
std::vector<bool> cheapest_nodes(const Program& program, const std::vector<uint32_t>& of_node, uint32_t sixteenths);

}  // namespace harmonics::engine
