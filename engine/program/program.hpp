// Program: a list of pure operations on values of concrete type. All transformations map a Program to another.
//
// Text form, one node per line: print.hpp.
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

// Leaves and control are ops too, so that a Program is a single list.
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
  std::string callee;                        // functional of a call; name of an input, parameter or state
  HTensor literal;                           // literal: its elements
  std::shared_ptr<const HostFunction> host;  // host_call
  uint32_t scope = 0;                        // index into Program::scopes
  std::shared_ptr<const Program> body = {};  // scan: one step
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
  std::vector<Node> nodes;                     // in order: after the producers of their inputs
  std::vector<NamedValue> outputs;             // named results
  std::vector<NamedValue> updates;             // parameter or state name -> its value after the step
  std::vector<NodeScope> scopes{NodeScope()};  // the first is the empty one

  const TensorType& type(ValueId v) const { return values[v].type; }
  const Node& producer(ValueId v) const { return nodes[values[v].node]; }
  const NodeScope& scope_of(const Node& node) const { return scopes[node.scope]; }
  // Leaf (input, parameter, state) by name; nullptr if there is none.
  const Node* leaf(Op op, std::string_view name) const;
  std::vector<const Node*> leaves(Op op) const;
  const NamedValue* output(std::string_view name) const;

  // Index of the scope, which is added if the program lacks it.
  uint32_t scope_index(const NodeScope& scope);
  // Appends a node with outputs of these types; returns its index.
  uint32_t append(Node node, const std::vector<TensorType>& types);
};

std::vector<TensorType> input_types(const Program& program, const Node& node);
std::vector<TensorType> output_types(const Program& program, const Node& node);
// Whether a node has operands or results of stored types (q8_0 ...), which it converts or moves.
bool converts_stored(const Program& program, const Node& node);
// Inferred types of a node's results (leaves and host calls: as declared). Throws inference errors; an unknown
// functional is ErrorKind::Name.
std::vector<TensorType> inferred_types(const Program& program, const Node& node);
// Number of reads of each value, by nodes, outputs and updates.
std::vector<uint32_t> count_uses(const Program& program);
// Checks the structure: order, arity, ids, inferred types. Throws ErrorKind::Internal.
void verify(const Program& program);
// Renumbers values in node order and scopes in order of first use; ids change.
void renumber(Program& program);

}  // namespace harmonics::engine
