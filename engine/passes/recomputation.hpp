// Selects results of the forward pass that are recomputed in the backward pass, so that they need not be kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Parts of a transformer block, found by structure. Log-sum-exps, means and the sums of residual connections are always
// kept.
namespace parts {
constexpr uint32_t norm = 1;        // results of rms_norm and layer_norm
constexpr uint32_t qkv = 2;         // inputs of an attention, from the linear maps on
constexpr uint32_t attention = 4;   // result of an attention
constexpr uint32_t activation = 8;  // silu, gelu ..., and the gated product
constexpr uint32_t ffn = 16;        // linear maps before an activation
constexpr uint32_t branch = 32;     // everything between two residual connections
constexpr uint32_t any = 63;
}  // namespace parts

struct Recomputation {
  uint32_t parts = 0;               // bit set of namespace parts
  std::vector<std::string> scopes;  // patterns of scopes whose results are recomputed
  // Fraction, in sixteenths, of the nodes of blocks to recompute: those with the least cost per byte.
  uint32_t cheapest = 0;
  bool automatic = false;  // recompute as much as the memory budget requires
  uint64_t budget = 0;     // bytes; 0: half of the machine's memory

  bool none() const { return parts == 0 && scopes.empty() && cheapest == 0 && !automatic; }
};

// Returns the names of presets, without "none" and "auto".
const std::vector<std::string>& recomputation_presets();
// Parses "none", "attention,swiglu", "auto", "auto=2G" (bytes, with K, M, G or T) or patterns of scopes ("*/mlp").
// Throws ErrorKind::Usage for other texts.
Recomputation parse_recomputation(const std::string& text);

// Returns, by node, the parts that its results belong to.
std::vector<uint32_t> parts_of_blocks(const Program& program);
// Returns, by node, whether it is among the cheapest `sixteenths` of the nodes that belong to a part.
std::vector<bool> cheapest_nodes(const Program& program, const std::vector<uint32_t>& of_node, uint32_t sixteenths);

}  // namespace harmonics::engine
