// Precision recipes: the rounding of operands of products.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Rounding for products that match all members that are set.
struct PrecisionRule {
  std::vector<Phase> phases = {};    // empty: all
  std::string functional = {};       // "linear", "conv"; "dot": the primitive; empty: all
  std::optional<DType> weight = {};  // element type of the weight, the operand that may have a stored type
  std::optional<bool> stored = {};   // whether the weight has a stored type
  Rounding rounding = Rounding::none;
  std::string activation_type = {};  // `linear` in the forward pass: type that rows of x are quantised to
  // Lower bound for rows, columns and depth. Rounding smaller products costs more than it saves.
  int64_t least_side = 0;
};

struct ProductDecision {
  Rounding rounding = Rounding::none;
  std::string activation_type = {};  // see PrecisionRule
};

// The policy's decision takes precedence over the first matching rule. Without either, a product does not round.
struct PrecisionRecipe {
  std::string name;
  std::vector<PrecisionRule> rules;
  // Called for every product; may be empty. Throws for a decision that the product or the device does not support.
  std::function<std::optional<ProductDecision>(const Program&, const Node&)> policy = {};
};

// Returns whether the node multiplies matrices: `dot`, or a call whose body contains one.
bool multiplies(const Program& program, const Node& node);
// Returns whether rows of x can be quantised to blocks of the stored type: `linear` in the forward pass, with a row
// length that is a multiple of the block size.
bool can_quantise_rows(const Program& program, const Node& node, const std::string& type);

// Sets the rounding of each product according to the recipe (NodeScope::rounding), and the activation_type of `linear`
// if can_quantise_rows(). Bodies and fused calls inherit the rounding of the call. After dce, and before all passes
// that query the kernels of the device.
Program set_precision(const Program& program, const PrecisionRecipe& recipe);

}  // namespace harmonics::engine
