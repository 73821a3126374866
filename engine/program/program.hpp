// Program: a list of pure operations on values of concrete type. Everything "advanced" rewrites one Program into another.
//
// Text form (print.hpp): one node a line, read back exactly.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/program/attributes.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics {

class Functional;
class HostFunction;  // an opaque body of a plugin (reads numbers); see host_function.hpp

// Leaves and structure are ops too, so that a Program is one list.
enum class Op : uint16_t {
#define HM_OP(name, ...) name,
#include "engine/program/op.def"
#undef HM_OP
};

struct Node {
  Op op;
  AttributeMap attributes;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::string callee;                          // call: the functional's name; input, parameter, state: its name
  HTensor literal;                             // literal: the numbers
  std::shared_ptr<const HostFunction> host;    // host_call
  uint32_t scope = 0;                          // index into Program::scopes
};

struct ValueInfo {
  TensorType type;
  uint32_t node = 0;   // who makes it
  uint32_t output = 0; // which of its outputs
};

struct NamedValue {
  std::string name;
  ValueId value;
};

struct Program {
  std::string name;
  std::vector<ValueInfo> values;
  std::vector<Node> nodes;                       // in order: inputs of a node are made before it
  std::vector<NamedValue> outputs;               // results handed out
  std::vector<NamedValue> updates;               // parameter or state name -> its value after the step
  std::vector<std::string> scopes{""};           // paths nodes belong to: "hidden.output", "optimizer/hidden.weight"

  const TensorType& type(ValueId v) const { return values[v].type; }
  const Node& producer(ValueId v) const { return nodes[values[v].node]; }
  // Leaf nodes (input, parameter, state) by name; nullptr when there is none.
  const Node* leaf(Op op, std::string_view name) const;
  std::vector<const Node*> leaves(Op op) const;
  const NamedValue* output(std::string_view name) const;

  // Appends a node whose outputs have these types; returns its index.
  uint32_t append(Node node, const std::vector<TensorType>& types);
};

// Types of a node's results as inference gives them from its operands' types (leaves and host calls: as announced).
// Throws what inference throws; an unknown functional is an error of kind Name.
std::vector<TensorType> inferred_types(const Program& program, const Node& node);
// Structural checks: order, arity, ids in range, types equal to what inference gives. Throws ErrorKind::Internal.
void verify(const Program& program);
// Values numbered in the order of the nodes that make them, scopes in the order of their first use; ids change.
void renumber(Program& program);

}  // namespace harmonics
