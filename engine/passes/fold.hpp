// Constant folding for passes.
#pragma once

#include <optional>

#include "engine/passes/pass.hpp"

namespace harmonics::engine {

inline constexpr int64_t kMaxFolded = 4096;  // elements

// Evaluates a literal, full or iota node.
HTensor constant_of(const Node& node, const TensorType& type);
// Returns a `full` node with this value, or nothing if the elements differ.
std::optional<Node> as_full(const HTensor& value);
// Evaluates a node over constants. Returns one constant node per output, or nothing if it should not be folded.
std::vector<Node> fold(const Program& program, const Node& node, const std::vector<TensorType>& outputs);

}  // namespace harmonics::engine
