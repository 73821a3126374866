// Program: a list of pure operations on values of concrete type. All transformations map a Program to another.
//
// print.hpp describes the text form.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/program/node_scope.hpp"
#include "engine/tensor/attributes.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

class Functional;
struct Program;
class HostFunction;  // a plugin's function as an opaque node; see host_function.hpp

// Leaves and control nodes are operations too, so that a Program is a single list.
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
  std::string callee;                        // name of the called functional, or of an input, parameter or state
  HTensor literal;                           // literal: the elements
  std::shared_ptr<const HostFunction> host;  // host_call
  uint32_t scope = 0;                        // index into Program::scopes
  std::shared_ptr<const Program> body = {};  // scan: the program of one step
};

struct ValueInfo {
  TensorType type;
  uint32_t node = 0;    // its producer
  uint32_t output = 0;  // index among the producer's outputs
};

struct NamedValue {
  std::string name;
  ValueId value;
};

struct Program {
  std::string name;
  std::vector<ValueInfo> values;
  std::vector<Node> nodes;                     // in topological order
  std::vector<NamedValue> outputs;             // named results
  std::vector<NamedValue> updates;             // parameter or state name, and its value after the step
  std::vector<NodeScope> scopes{NodeScope()};  // the first is empty

  const TensorType& type(ValueId v) const { return values[v].type; }
  const Node& producer(ValueId v) const { return nodes[values[v].node]; }
  const NodeScope& scope_of(const Node& node) const { return scopes[node.scope]; }
  // Returns the leaf (input, parameter, state) of this name, or null.
  const Node* leaf(Op op, std::string_view name) const;
  std::vector<const Node*> leaves(Op op) const;
  const NamedValue* output(std::string_view name) const;

  // Returns the index of the scope, adding it if necessary.
  uint32_t scope_index(const NodeScope& scope);
  // Appends a node with outputs of these types. Returns its index.
  uint32_t append(Node node, const std::vector<TensorType>& types);
};

std::vector<TensorType> input_types(const Program& program, const Node& node);
std::vector<TensorType> output_types(const Program& program, const Node& node);
// Returns whether a node has operands or results of stored types (q8_0 ...).
bool converts_stored(const Program& program, const Node& node);
// Returns the inferred types of a node's results (for leaves and host calls, the declared types). Throws inference
// errors, and ErrorKind::Name for an unknown functional.
std::vector<TensorType> inferred_types(const Program& program, const Node& node);
// Returns the number of reads of each value by nodes, outputs and updates.
std::vector<uint32_t> count_uses(const Program& program);
// Checks the structure: order, arity, ids, inferred types. Throws ErrorKind::Internal.
void verify(const Program& program);
// Renumbers values in node order and scopes in order of first use. Invalidates ids.
void renumber(Program& program);

}  // namespace harmonics::engine
