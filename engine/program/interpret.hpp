// Evaluates a program node by node by the reference; slow and simple, the standard for all kernels.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/program/functional.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

// Results of a node that is not a leaf, from its operands. Calls evaluate their body.
Values evaluate_node(const Node& node, const std::vector<TensorType>& types, const Values& inputs);

// Returns the outputs, then the updates, in order. `leaves` has inputs, parameters and states by name; a missing one or
// another type is an error.
Values interpret(const Program& program, const std::map<std::string, HTensor>& leaves);

// Evaluates an operation into new tensors.
Values evaluate_op(Op op, const AttributeMap& attributes, const std::vector<TensorType>& types, const Values& inputs);

}  // namespace harmonics::engine
