// Random programs and inputs for property tests: all groups of primitives, calls, shared and dead nodes.
#pragma once

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/program/interpret.hpp"
#include "engine/program/op.hpp"

namespace harmonics::engine::testing {

// Builds a program node by node.
class Builder {
 public:
  explicit Builder(std::string name = "test") { program.name = std::move(name); }

  Program program;

  void scope(const std::string& text) { scope_ = program.scope_index(scope_of_text(text)); }
  ValueId leaf(Op op, const std::string& name, const TensorType& type) {
    Node n = node(op);
    n.callee = name;
    return append(std::move(n), {type})[0];
  }
  ValueId input(const std::string& name, const Shape& shape, DType dtype = DType::F32) {
    return leaf(Op::input, name, {dtype, shape});
  }
  ValueId parameter(const std::string& name, const Shape& shape) {
    return leaf(Op::parameter, name, {DType::F32, shape});
  }
  ValueId state(const std::string& name, const Shape& shape) { return leaf(Op::state, name, {DType::F32, shape}); }
  ValueId literal(const HTensor& value) {
    Node n = node(Op::literal);
    n.literal = value;
    return append(std::move(n), {type_of(value)})[0];
  }
  ValueId full(const Shape& shape, double value, DType dtype = DType::F32) {
    AttributeMap a;
    a.set("dtype", static_cast<int64_t>(dtype)).set("shape", shape.vector()).set("value", value);
    return apply(Op::full, {}, a);
  }
  std::vector<ValueId> apply_all(Op op, const std::vector<ValueId>& inputs, const AttributeMap& attributes = {}) {
    Node n = node(op);
    n.inputs = inputs;
    n.attributes = attributes;
    return append(std::move(n), op_row(op).infer(attributes, types(inputs)));
  }
  ValueId apply(Op op, const std::vector<ValueId>& inputs, const AttributeMap& attributes = {}) {
    return apply_all(op, inputs, attributes)[0];
  }
  std::vector<ValueId> call_all(const std::string& callee, const std::vector<ValueId>& inputs,
                                const AttributeMap& attributes = {}) {
    const auto body = body_program(*FunctionalTable::global().find(callee), attributes, types(inputs));
    std::vector<TensorType> results;
    for (const NamedValue& v : body->outputs) results.push_back(body->type(v.value));
    Node n = node(Op::call);
    n.callee = callee;
    n.inputs = inputs;
    n.attributes = attributes;
    return append(std::move(n), results);
  }
  ValueId call(const std::string& callee, const std::vector<ValueId>& inputs, const AttributeMap& attributes = {}) {
    return call_all(callee, inputs, attributes)[0];
  }
  void output(const std::string& name, ValueId v) { program.outputs.push_back({name, v}); }
  void update(const std::string& name, ValueId v) { program.updates.push_back({name, v}); }
  Shape shape(ValueId v) const { return program.type(v).shape; }

  std::vector<ValueId> append(Node n, const std::vector<TensorType>& types) {
    return program.nodes[program.append(std::move(n), types)].outputs;
  }
  Node node(Op op) const {
    Node n{};
    n.op = op;
    n.scope = scope_;
    return n;
  }

 private:
  std::vector<TensorType> types(const std::vector<ValueId>& values) const {
    std::vector<TensorType> result;
    for (ValueId v : values) result.push_back(program.type(v));
    return result;
  }
  uint32_t scope_ = 0;
};

class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed, int size = 60) : random_(seed), b_("random" + std::to_string(seed)) {
    leaves();
    for (int i = 0; i < size; ++i) {
      b_.scope(i < size * 5 / 10   ? pick({"hidden", "hidden/attention", "hidden/residual", ""})
               : i < size * 8 / 10 ? "gradient/hidden"
                                   : "optimizer/w");
      step();
    }
    results();
    verify(b_.program);
  }

  const Program& program() const { return b_.program; }
  const std::map<std::string, HTensor>& numbers() const { return numbers_; }

 private:
  using List = std::vector<ValueId>;

  uint32_t below(size_t n) { return static_cast<uint32_t>(random_() % n); }
  std::string pick(const std::vector<std::string>& list) { return list[below(list.size())]; }
  Op pick(const std::vector<Op>& list) { return list[below(list.size())]; }
  Shape some_shape() {
    static const std::vector<Shape> shapes{{}, {4}, {3, 4}, {2, 3, 4}, {1, 4}, {3, 1}, {4, 4}, {16, 4}, {1}};
    return shapes[below(shapes.size())];
  }

  HTensor random_tensor(DType dtype, const Shape& shape, int64_t limit = 4) {
    const int64_t n = shape.count();
    if (dtype == DType::F32) {
      std::vector<float> values;
      for (int64_t i = 0; i < n; ++i)
        values.push_back(static_cast<float>(static_cast<int>(below(4001)) - 2000) / 1000.0f);
      return HTensor::from(shape, values);
    }
    std::vector<int64_t> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(below(static_cast<size_t>(limit)));
    return HTensor::from(shape, values);
  }

  ValueId remember(ValueId v) {
    if (b_.program.type(v).dtype == DType::F32) floats_.push_back(v);
    return v;
  }

  void leaves() {
    for (int i = 0; i < 4; ++i) {
      const std::string name = "x" + std::to_string(i);
      numbers_[name] = random_tensor(DType::F32, some_shape());
      remember(b_.input(name, numbers_[name].shape()));
    }
    for (int i = 0; i < 3; ++i) {
      const std::string name = "w" + std::to_string(i);
      numbers_[name] = random_tensor(DType::F32, i ? some_shape() : Shape{4, 4});
      remember(b_.leaf(i == 2 ? Op::state : Op::parameter, name, {DType::F32, numbers_[name].shape()}));
    }
    numbers_["indices"] = random_tensor(DType::I64, {3}, 3);
    indices_ = b_.input("indices", {3}, DType::I64);
    numbers_["counter"] = random_tensor(DType::I64, {2}, 1000);
    counter_ = b_.input("counter", {2}, DType::I64);
    remember(b_.literal(random_tensor(DType::F32, {3, 4})));
    remember(b_.literal(random_tensor(DType::F32, {})));
    remember(b_.full({3, 4}, 1.0));
  }

  ValueId any() {
    return floats_[below(3) ? floats_.size() - 1 - below(std::min<size_t>(floats_.size(), 12)) : below(floats_.size())];
  }
  ValueId any_of_rank(uint32_t rank) {
    List found;
    for (ValueId v : floats_)
      if (b_.shape(v).rank() == rank) found.push_back(v);
    return found[below(found.size())];
  }
  // Returns a second operand of x's shape: another value, a broadcast one or a constant.
  ValueId like(ValueId x) {
    const Shape shape = b_.shape(x);
    if (below(4) == 0) return b_.full(shape, pick(Op::add) ? (below(3) - 1.0) : 0.5);
    List found;
    for (ValueId v : floats_) {
      const Shape s = b_.shape(v);
      bool fits = s.rank() <= shape.rank();
      for (uint32_t i = 0; fits && i < s.rank(); ++i)
        fits = s[s.rank() - 1 - i] == 1 || s[s.rank() - 1 - i] == shape[shape.rank() - 1 - i];
      if (fits) found.push_back(v);
    }
    const ValueId v = found[below(found.size())];
    return b_.shape(v) == shape ? v : b_.apply(Op::broadcast, {v}, AttributeMap().set("shape", shape.vector()));
  }
  bool pick(Op) { return below(2) == 0; }

  static AttributeMap axes(std::vector<int64_t> list) { return AttributeMap().set("axes", std::move(list)); }

  void step() {
    switch (below(13)) {
      case 0:
      case 1:
        remember(b_.apply(pick(std::vector<Op>{Op::neg, Op::abs, Op::sign, Op::tanh, Op::logistic, Op::floor, Op::sin,
                                               Op::stop_gradient}),
                          {any()}));
        break;
      case 2:
      case 3:
      case 4: {
        const ValueId x = any();
        remember(b_.apply(pick(std::vector<Op>{Op::add, Op::sub, Op::mul, Op::maximum, Op::minimum, Op::div}),
                          {x, like(x)}));
        break;
      }
      case 5: {
        const ValueId x = any(),
                      mask = b_.apply(pick(std::vector<Op>{Op::less, Op::less_equal, Op::equal}), {x, like(x)});
        remember(b_.apply(Op::select, {mask, x, like(x)}));
        break;
      }
      case 6: {
        const ValueId wide = b_.apply(Op::cast, {any()}, AttributeMap().set("dtype", static_cast<int64_t>(DType::F64)));
        remember(b_.apply(Op::cast, {wide}, AttributeMap().set("dtype", static_cast<int64_t>(DType::F32))));
        break;
      }
      case 7:
        layout();
        break;
      case 8: {
        const ValueId x = any();
        if (b_.shape(x).rank() == 0) break;
        remember(b_.apply(pick(std::vector<Op>{Op::reduce_sum, Op::reduce_max}), {x},
                          axes({below(b_.shape(x).rank())}).set("keep", below(2) == 0)));
        break;
      }
      case 9: {
        const ValueId x = any_of_rank(2);
        if (b_.shape(x)[0] == 3) remember(b_.apply(Op::gather, {x, indices_}, AttributeMap().set("axis", int64_t{0})));
        if (b_.shape(x)[1] == 4) remember(b_.call("linear", {x, floats_[4]}));
        break;
      }
      case 10: {
        const ValueId x = any();
        const std::string callee = pick({"relu", "gelu", "softmax", "silu"});
        if (callee != "softmax" || b_.shape(x).rank() > 0) remember(b_.call(callee, {x}));
        break;
      }
      case 11: {
        const AttributeMap a = AttributeMap().set("stream", int64_t{below(2)}).set("shape", std::vector<int64_t>{3, 4});
        remember(b_.apply(Op::random_uniform, {counter_}, a));
        break;
      }
      default:
        again();
    }
  }

  void layout() {
    const ValueId x = any();
    const Shape s = b_.shape(x);
    const uint32_t rank = s.rank();
    if (rank == 0) return;
    const uint32_t axis = below(rank);
    switch (below(6)) {
      case 0:
        remember(b_.apply(Op::reshape, {x}, AttributeMap().set("shape", std::vector<int64_t>{s.count()})));
        break;
      case 1: {
        std::vector<int64_t> order(rank);
        for (uint32_t i = 0; i < rank; ++i) order[i] = (i + 1) % rank;
        remember(b_.apply(Op::transpose, {x}, AttributeMap().set("permutation", order)));
        break;
      }
      case 2: {
        std::vector<int64_t> starts(rank, 0), limits = s.vector(), strides(rank, 1);
        starts[axis] = below(static_cast<size_t>(s[axis]));
        if (below(3) == 0) strides[axis] = 2;
        remember(b_.apply(Op::slice, {x},
                          AttributeMap().set("starts", starts).set("limits", limits).set("strides", strides)));
        break;
      }
      case 3:
        remember(b_.apply(Op::concat, {x, x}, AttributeMap().set("axis", int64_t{axis})));
        break;
      case 4:
        remember(b_.apply(Op::reverse, {x}, axes({axis})));
        break;
      default:
        remember(b_.apply(Op::argmax, {x}, AttributeMap().set("axis", int64_t{axis})));
    }
    if (b_.shape(floats_.back()).count() > 400) floats_.pop_back();
  }

  // Repeats an earlier node, as a case for cse.
  void again() {
    const Node earlier = b_.program.producer(any());
    if (earlier.op == Op::input || earlier.op == Op::parameter || earlier.op == Op::state) return;
    std::vector<TensorType> types;
    for (ValueId v : earlier.outputs) types.push_back(b_.program.type(v));
    remember(b_.append(earlier, types)[0]);
  }

  void results() {
    for (int i = 0; i < 3; ++i) b_.output("y" + std::to_string(i), any());
    b_.output("same", floats_[below(6)]);
    for (int i = 0; i < 3; ++i) {
      List fitting;
      for (ValueId v : floats_)
        if (b_.shape(v) == b_.shape(floats_[4 + static_cast<size_t>(i)])) fitting.push_back(v);
      b_.update("w" + std::to_string(i), fitting[below(2) ? fitting.size() - 1 : below(fitting.size())]);
    }
  }

  std::mt19937 random_;
  Builder b_;
  std::map<std::string, HTensor> numbers_;
  List floats_;
  ValueId indices_ = 0, counter_ = 0;
};

inline bool same_bits(const HTensor& a, const HTensor& b) {
  const TensorType type = type_of(a);
  return type == type_of(b) && (type.bytes() == 0 || std::memcmp(a.bytes(), b.bytes(), type.bytes()) == 0);
}
inline bool same_bits(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}
inline size_t count_of(const Program& program, Op op) {
  size_t n = 0;
  for (const Node& node : program.nodes) n += node.op == op;
  return n;
}

}  // namespace harmonics::engine::testing
