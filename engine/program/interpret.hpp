// Runs a program node by node with the reference evaluation: slow, plain, what every kernel is compared with.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/program/functional.hpp"
#include "engine/program/program.hpp"

namespace harmonics {

// Results of one node that is not an input, parameter or state, from its operands' numbers. Calls run their body.
Values evaluate_node(const Node& node, const std::vector<TensorType>& types, const Values& inputs);

// The outputs in order, then the updates in order. `leaves` gives inputs, parameters and states by name; one that is
// missing or has another type is an error naming it.
Values interpret(const Program& program, const std::map<std::string, HTensor>& leaves);

// A new tensor with the result of a reference evaluation.
Values evaluate_op(Op op, const AttributeMap& attributes, const std::vector<TensorType>& types, const Values& inputs);

}  // namespace harmonics
