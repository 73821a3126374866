// Recipes of precision: which products round their operands.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/program/program.hpp"

namespace harmonics::engine {

// Applies to products for which every member that is set holds.
struct PrecisionRule {
  std::vector<Phase> phases = {};    // empty: all
  std::string functional = {};       // "linear", "conv"; "dot": the primitive; empty: all
  std::optional<DType> weight = {};  // element type of the operand that may be of a stored type
  std::optional<bool> stored = {};   // whether that operand is of a stored type
  Rounding rounding = Rounding::none;
  std::string activation_type = {};  // of `linear` in the forward pass: what rows of x are quantised to
  // Least of rows, columns and depth. Rounding shorter products costs more than it saves.
  int64_t least_side = 0;
};

struct ProductDecision {
  Rounding rounding = Rounding::none;
  std::string activation_type = {};  // as PrecisionRule::activation_type
};

// The policy decides, or else the first rule that applies; without one a product does not round.
struct PrecisionRecipe {
  std::string name;
  std::vector<PrecisionRule> rules;
  // May be empty. Asked for every product; throws for a decision that the product or the device cannot follow.
  std::function<std::optional<ProductDecision>(const Program&, const Node&)> policy = {};
};

// Whether the node multiplies matrices: `dot`, or a call whose body does.
bool multiplies(const Program& program, const Node& node);
// Whether rows of its x can be quantised to blocks of the stored type: `linear` in the forward pass, rows of whole
// blocks.
bool can_quantise_rows(const Program& program, const Node& node, const std::string& type);

// Gives each product the rounding that the recipe says (NodeScope::rounding), and `linear` its activation_type where
// the depth is made of whole blocks. Bodies and fused calls inherit the rounding of the call. After dce, before every
// pass that asks whether a device has a kernel.
Program set_precision(const Program& program, const PrecisionRecipe& recipe);

}  // namespace harmonics::engine
