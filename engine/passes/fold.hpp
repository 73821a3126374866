// Constants while rewriting: what they hold, and computing with them ahead of time.
#pragma once

#include <optional>

#include "engine/passes/pass.hpp"

namespace harmonics {

inline constexpr int64_t kMaxFolded = 4096;  // elements

// The numbers of a literal, full or iota node.
HTensor constant_of(const Node& node, const TensorType& type);
// A `full` node with exactly these numbers, when one value fills the tensor.
std::optional<Node> as_full(const HTensor& value);
// What a node over constants computes, as constant nodes, one per output; empty when it is not to be folded.
std::vector<Node> fold(const Program& program, const Node& node, const std::vector<TensorType>& outputs);

}  // namespace harmonics
