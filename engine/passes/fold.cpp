#include "engine/passes/fold.hpp"

#include <algorithm>
#include <cstring>

#include "engine/program/op.hpp"

namespace harmonics::engine {

namespace {

// Excludes index operations, because an invalid index is an error when folded, but clamped in a compiled program.
bool may_fold(const Node& node) {
  if (node.op == Op::random_uniform || node.op == Op::fused_elementwise || is_constant(node.op)) return false;
  switch (op_row(node.op).family) {
    case Family::unary:
    case Family::binary:
    case Family::ternary:
    case Family::layout:
    case Family::reduce:
    case Family::linear:
    case Family::storage:
      return true;
    default:
      return false;
  }
}

Node literal_of(HTensor value) {
  if (auto node = as_full(value)) return *node;
  Node node{};
  node.op = Op::literal;
  node.literal = std::move(value);
  return node;
}

// Folds an elementwise or layout operation on `full` tensors by computing one element.
std::optional<Node> fold_full(const Program& program, const Node& node, const TensorType& output) {
  const Family family = op_row(node.op).family;
  const bool moves = node.op == Op::reshape || node.op == Op::transpose || node.op == Op::broadcast ||
                     node.op == Op::slice || node.op == Op::reverse;
  if ((!moves && !is_elementwise(node.op)) || is_stored(output.dtype)) return std::nullopt;
  for (ValueId v : node.inputs)
    if (program.producer(v).op != Op::full) return std::nullopt;
  if (moves) {
    Node full = program.producer(node.inputs[0]);
    full.outputs.clear();
    full.attributes.set("shape", output.shape.vector());
    return full;
  }
  if (family != Family::unary && family != Family::binary && family != Family::ternary) return std::nullopt;
  std::vector<HTensor> numbers;
  std::vector<ConstView> inputs;
  for (ValueId v : node.inputs) {
    Node one = program.producer(v);
    one.attributes.set("shape", std::vector<int64_t>{});
    numbers.push_back(constant_of(one, {program.type(v).dtype, {}}));
    inputs.push_back({{program.type(v).dtype, {}}, numbers.back().bytes()});
  }
  HTensor result(output.dtype, {});
  const View view{{output.dtype, {}}, result.mutable_bytes()};
  op_row(node.op).evaluate(node.attributes, inputs, std::span(&view, 1));
  auto full = as_full(result);
  if (full) full->attributes.set("shape", output.shape.vector());
  return full;
}

}  // namespace

HTensor constant_of(const Node& node, const TensorType& type) {
  if (node.op == Op::literal) return node.literal;
  HTensor value(type.dtype, type.shape);
  const View view{type, value.mutable_bytes()};
  op_row(node.op).evaluate(node.attributes, {}, std::span(&view, 1));
  return value;
}

std::optional<Node> as_full(const HTensor& value) {
  const TensorType type = type_of(value);
  if (is_stored(type.dtype)) return std::nullopt;
  const size_t width = element_bytes(type.dtype), bytes = type.bytes();
  if (bytes == 0) return std::nullopt;
  const auto* data = static_cast<const std::byte*>(value.bytes());
  if (bytes > width && std::memcmp(data, data + width, bytes - width) != 0) return std::nullopt;
  // Convert the value to double with the reference cast. Use it only if it converts back to the same bits.
  double number = 0;
  AttributeMap to_double;
  to_double.set("dtype", static_cast<int64_t>(DType::F64));
  const ConstView from{{type.dtype, {}}, data};
  const View as_double{{DType::F64, {}}, &number};
  op_row(Op::cast).evaluate(to_double, std::span(&from, 1), std::span(&as_double, 1));
  Node node{};
  node.op = Op::full;
  node.attributes.set("dtype", static_cast<int64_t>(type.dtype))
      .set("shape", std::vector<int64_t>{})
      .set("value", number);
  const HTensor back = constant_of(node, {type.dtype, {}});
  if (number != number || std::memcmp(back.bytes(), data, width) != 0) return std::nullopt;
  node.attributes.set("shape", type.shape.vector());
  return node;
}

std::vector<Node> fold(const Program& program, const Node& node, const std::vector<TensorType>& outputs) {
  if (node.inputs.empty() || !may_fold(node)) return {};
  for (ValueId v : node.inputs)
    if (!is_constant(program.producer(v).op)) return {};
  if (outputs.size() == 1)
    if (auto full = fold_full(program, node, outputs[0])) return {*full};
  if (node.op == Op::broadcast) return {};  // smaller unfolded; its readers are folded instead
  const auto small = [](const TensorType& t) { return t.shape.count() <= kMaxFolded; };
  std::vector<HTensor> numbers;
  std::vector<ConstView> inputs;
  for (ValueId v : node.inputs) {
    if (!small(program.type(v))) return {};
    numbers.push_back(constant_of(program.producer(v), program.type(v)));
    inputs.push_back({program.type(v), numbers.back().bytes()});
  }
  if (!std::all_of(outputs.begin(), outputs.end(), small)) return {};
  std::vector<HTensor> results;
  std::vector<View> views;
  for (const TensorType& t : outputs) {
    results.emplace_back(t.dtype, t.shape);
    views.push_back({t, results.back().mutable_bytes()});
  }
  op_row(node.op).evaluate(node.attributes, inputs, views);
  std::vector<Node> nodes;
  for (HTensor& r : results) nodes.push_back(literal_of(std::move(r)));
  return nodes;
}

}  // namespace harmonics::engine
