// Evaluates a program node by node with reference implementations. Slow and simple; all kernels are tested against it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/program/functional.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

// Returns the results of a node that is not a leaf. Calls evaluate their body.
Values evaluate_node(const Node& node, const std::vector<TensorType>& types, const Values& inputs);

// Returns the outputs, then the updates, in order. `leaves`: inputs, parameters and states by name. Throws if one is
// missing or has another type.
Values interpret(const Program& program, const std::map<std::string, HTensor>& leaves);

// Evaluates an operation into new tensors.
Values evaluate_op(Op op, const AttributeMap& attributes, const std::vector<TensorType>& types, const Values& inputs);

}  // namespace harmonics::engine
