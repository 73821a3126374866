#include "engine/conformance/device_calls.hpp"

#include <map>
#include <set>

#include <harmonics/ops.hpp>

#include "engine/conformance/functional_cases.hpp"
#include "engine/conformance/gradient_check.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

constexpr DType kFloats[] = {DType::F32, DType::F64, DType::F16, DType::BF16};
constexpr DType kWhole[] = {DType::I32, DType::I64, DType::U8};
constexpr size_t kMostOfOne = 12;  // examples per primitive and type
// Maximum number of chains. Devices may compile a program for each, and types differ only in loads and stores.
constexpr size_t most_chains(DType type) { return type == DType::F32 ? 40 : 8; }
const std::vector<Shape> kSmall = {{}, {7}, {3, 5}, {2, 3, 5}, {1, 1}, {0, 3}};
const Shape kLarge{37, 1031};

HTensor numbers_of(const TensorType& type, uint64_t seed) {
  if (is_float(type.dtype)) return random_tensor(type.shape, seed, -2, 2, type.dtype);
  if (type.dtype == DType::Bool) return cast(random_indices(type.shape, seed, 2), type.dtype);
  return cast(random_indices(type.shape, seed, 5) + 1, type.dtype);
}

// Returns inputs that keep the results of bodies finite and indices in range.
HTensor careful_numbers_of(const TensorType& type, uint64_t seed) {
  if (is_float(type.dtype)) return random_tensor(type.shape, seed, 0.1, 0.9, type.dtype);
  return cast(random_indices(type.shape, seed, 2), type.dtype);
}

// Returns a program of primitives that are rare or missing in bodies.
Program further_primitives(DType type) {
  Tracer t("primitives");
  const HTensor x = t.input("x", {type, {3, 5}}), image = t.input("image", {type, {2, 3, 5, 7}}),
                patch = t.input("patch", {type, {2, 5}}), at = t.input("at", {DType::I64, {2}}),
                ids = t.input("ids", {DType::I64, {4}}), rows = t.input("rows", {type, {4, 5}});
  int results = 0;
  const auto keep = [&](const HTensor& y) { t.output(std::to_string(results++), y); };
  for (const std::vector<int64_t>& axes : {std::vector<int64_t>{0}, {1}, {0, 1}}) {
    keep(reverse(x, axes));
    for (const bool kept : {false, true})
      for (const auto reduce : {reduce_sum, reduce_max, reduce_min, reduce_prod}) keep(reduce(x, axes, kept));
  }
  keep(reduce_sum(image, {1, 3}));
  keep(reduce_max(image, {0, 2}));
  for (const int64_t axis : {0, 1}) {
    keep(argmax(x, axis)), keep(argmin(x, axis)), keep(cumsum(x, axis));
    keep(concat({x, x, x}, axis));
    keep(iota(type, {3, 5}, axis));
  }
  keep(transpose(x, {1, 0})), keep(transpose(image, {0, 2, 3, 1})), keep(transpose(image, {3, 1, 0, 2}));
  keep(reshape(image, {6, 35})), keep(broadcast(x, {4, 3, 5})), keep(broadcast(slice_axis(x, 1, 0, 1), {3, 11}));
  keep(slice(image, {0, 1, 0, 1}, {2, 3, 5, 7}, {1, 1, 2, 3})), keep(pad(x, {1, 0}, {0, 2}, 0.5, {0, 1}));
  keep(gather(x, ids, 0)), keep(gather(x, ids, 1)), keep(scatter_add(x, ids, rows));
  keep(dynamic_slice(x, at, {2, 3})), keep(update_slice(x, patch, at));
  const auto [largest, places] = top_k(x, 3);
  keep(largest), keep(places);
  for (const bool falling : {false, true}) {
    const auto [sorted, order] = sort(x, falling, falling);
    keep(sorted), keep(order);
  }
  const HTensor pairs = t.input("pairs", {DType::I32, {4, 2}}), cells = t.input("cells", {type, {4}});
  keep(gather_nd(x, pairs)), keep(gather_nd(image, pairs)), keep(gather_nd(x, reshape(at, {2, 1}))),
      keep(gather_nd(image, reshape(pairs, {2, 2, 2}), 1));
  for (const char* reduction : {"set", "add", "max", "min"}) {
    keep(scatter_nd(x, pairs, cells, reduction));
    keep(scatter_nd(image, reshape(pairs, {2, 2, 2}), t.input(reduction, {type, {2, 2, 7}}), reduction, 1));
  }
  for (const char* reduction : {"sum", "max", "min"}) {
    keep(reduce_window(x, reduction, {{2, 3}}));
    keep(reduce_window(image, reduction, {{1, 1, 3, 2}, {1, 1, 2, 3}, {0, 0, 1, 0}, {0, 0, 2, 1}, {1, 1, 1, 2}}));
    keep(reduce_window(image, reduction, {{2, 3, 1, 1}}));
  }
  keep(bitcast(x, DType::U8)), keep(bitcast(bitcast(x, DType::U8), type));
  if (type == DType::F32) {
    const HTensor wide = t.input("wide", {type, {41, 67}}), deep = t.input("deep", {type, {67, 35}}),
                  square = t.input("square", {type, {131, 131}});
    keep(matmul(square, square)), keep(matmul(wide, deep)), keep(dot(wide, wide, {0}, {0})),
        keep(transpose(wide, {1, 0}));
    for (const int64_t axis : {0, 1})
      keep(reduce_sum(wide, {axis})), keep(reduce_max(wide, {axis})), keep(argmax(wide, axis)),
          keep(cumsum(wide, axis)), keep(sort(wide, axis).second), keep(sort(wide, axis, true).first);
    keep(reduce_window(deep, "max", {{3, 4}, {2, 3}, {1, 0}, {1, 2}}));
    keep(call1("random_uniform", {at}, Attributes().set("stream", int64_t{7}).set("shape", Shape{3, 11})));
  }
  keep(matmul(x, transpose(x, {1, 0}))), keep(dot(x, x, {0}, {0})), keep(dot(image, image, {3}, {3}, {0, 1}, {0, 1}));
  const Attributes windows = Attributes()
                                 .set("kernel", std::vector<int64_t>{2, 3})
                                 .set("strides", std::vector<int64_t>{1, 2})
                                 .set("padding_low", std::vector<int64_t>{1, 0})
                                 .set("padding_high", std::vector<int64_t>{0, 1})
                                 .set("dilation", std::vector<int64_t>{1, 1})
                                 .set("fill", 0.0);
  const HTensor patches = call1("patches", {image}, windows);
  keep(patches), keep(call1("unpatches", {patches}, Attributes(windows).set("input_shape", image.shape())));
  const HTensor scale = full(type, {}, 0.05), zero = full(DType::I8, {}, 3);
  const HTensor stored =
      call1("quantize", {x, scale, zero}, Attributes().set("axis", int64_t{0}).set("dtype", int64_t{HX_I8}));
  keep(stored), keep(call1("dequantize", {stored, scale, zero}, Attributes().set("axis", int64_t{0})));
  return t.take();
}

// Returns cases larger than a SIMD vector and than one part of a kernel.
conformance::Cases larger_cases() {
  using conformance::indices, conformance::numbers, conformance::positives, conformance::randoms, conformance::rate,
      conformance::spreads, conformance::statistics, conformance::Operand;
  conformance::Cases cases;
  const Operand rows = numbers({37, 131}), row = numbers({131}), heads = numbers({2, 3, 33, 20});
  for (const char* name : {"relu", "silu", "gelu", "softmax", "log_softmax"})
    cases.push_back({name, {}, {rows}}), cases.push_back({name, {}, {numbers(kLarge)}});
  cases.push_back({"linear", {}, {rows, numbers({65, 131}), numbers({65})}});
  cases.push_back(
      {"linear", AttributeMap().set("activation", std::string("relu")), {rows, numbers({65, 131}), numbers({65})}});
  cases.push_back({"linear", AttributeMap().set("transposed", true), {rows, numbers({131, 65}), numbers({65})}});
  cases.push_back({"layer_norm", {}, {rows, row, row}});
  cases.push_back({"rms_norm", {}, {rows, row}});
  cases.push_back({"batch_norm", {}, {numbers({9, 19, 5, 7}), numbers({19}), numbers({19})}});
  cases.push_back({"softmax_cross_entropy", {}, {rows, indices({37}, 131, DType::I64)}});
  cases.push_back({"embedding", {}, {rows, indices({5, 29}, 37, DType::I64)}});
  cases.push_back({"attention", AttributeMap().set("causal", true), {heads, heads, heads}});
  // Few distinct rows, each repeated often.
  const Operand each = statistics({37}), spread = spreads({37}), ids = indices({37}, 5, DType::I64);
  for (const char* name : {"softmax_grad", "log_softmax_grad"})
    cases.push_back({name, {}, {rows, rows}}), cases.push_back({name, {}, {numbers(kLarge), numbers(kLarge)}});
  cases.push_back({"softmax_cross_entropy_grad", {}, {rows, indices({37}, 131, DType::I64), each, each}});
  cases.push_back({"layer_norm_grad", {}, {rows, row, each, spread, rows}});
  cases.push_back({"rms_norm_grad", {}, {rows, row, spread, rows}});
  cases.push_back({"embedding_grad", AttributeMap().set("rows", int64_t{7}), {ids, rows}});
  cases.push_back({"attention_grad",
                   AttributeMap().set("causal", true),
                   {heads, heads, heads, heads, statistics({2, 3, 33}), heads}});
  cases.push_back({"rope", {}, {heads}});
  cases.push_back({"dropout", AttributeMap().set("rate", 0.25), {rows, randoms(rows.shape)}});
  cases.push_back({"global_norm", {}, {rows, row, numbers(kLarge)}});
  for (const int64_t stride : {1, 2}) {
    const std::vector<int64_t> strides{stride, stride}, edge{1, 1}, kernel{3, 3};
    AttributeMap window = AttributeMap().set("strides", strides).set("padding_low", edge).set("padding_high", edge);
    const Operand image = numbers({3, 5, 13, 19});
    cases.push_back({"conv", window, {image, numbers({17, 5, 3, 3}), numbers({17})}});
    cases.push_back({"max_pool", window.set("kernel", kernel), {image}});
  }
  cases.push_back({"adam", {}, {rows, rows, rows, positives(rows.shape), rate(), {Operand::step, {}}}});
  AttributeMap many = AttributeMap().set("update", std::string("adamw")).set("parameters", int64_t{60});
  std::vector<Operand> tensors;
  for (int i = 0; i < 60; ++i) {
    const Operand w = i % 7 == 0 ? rows : numbers({1 + i * 29});
    tensors.insert(tensors.end(), {w, w, w, positives(w.shape)});
  }
  tensors.insert(tensors.end(), {rate(), {Operand::step, {}}});
  cases.push_back({"update_all", many, std::move(tensors)});
  return cases;
}

class Collection {
 public:
  explicit Collection(uint64_t seed) : seed_(seed), generator_(seed) {}

  std::vector<DeviceCall> take() {
    for (const DType type : kFloats) {
      for (uint64_t draw = 1; draw <= (type == DType::F32 ? 3u : 1u); ++draw)
        functionals(conformance::functional_cases(seed_ + draw), type);
      if (type == DType::F32) functionals(larger_cases(), type);
      const Program further = further_primitives(type);
      for (const Node& node : further.nodes) primitive(further, node);
      elementwise(type);
    }
    for (const DType type : kWhole) elementwise(type);
    return std::move(calls_);
  }

 private:
  void functionals(const conformance::Cases& cases, DType type) {
    for (const conformance::FunctionalCase& c : cases) {
      Values inputs = conformance::make_operands(c, type, generator_);
      std::vector<TensorType> types;
      for (const HTensor& x : inputs) types.push_back(type_of(x));
      const auto body = body_program(*FunctionalTable::global().find(c.functional), c.attributes, types);
      std::vector<TensorType> results;
      for (const NamedValue& v : body->outputs) results.push_back(body->type(v.value));
      add({c.functional, c.attributes, std::move(inputs)}, results);
      const Program flat = inline_calls(*body, [](const Program&, const Node&) { return false; });
      primitives(flat, type);
      primitives(fuse_elementwise(flat), type);
    }
  }

  void primitives(const Program& program, DType type) {
    for (const Node& node : program.nodes) {
      if (node.op == Op::scan) {  // the host runs the loop, devices run its body
        primitives(*node.body, type);
        continue;
      }
      size_t& so_many = so_many_[{node.op, type}];
      if (so_many < (node.op == Op::fused_elementwise ? most_chains(type) : kMostOfOne))
        so_many += primitive(program, node);
    }
  }
  bool primitive(const Program& program, const Node& node) {
    if (is_leaf(node.op) || node.op == Op::literal) return false;
    CallExample call{std::string(op_name(node.op)), node.attributes, {}};
    for (const ValueId v : node.inputs) call.inputs.push_back(careful_numbers_of(program.type(v), seed_ + v));
    return add(std::move(call), output_types(program, node));
  }

  void elementwise(DType type) {
    for (const OpRow& row : op_rows()) {
      if (!is_elementwise(row.op)) continue;
      for (const Shape& shape : kSmall) elementwise(row, type, shape);
      if (type == DType::F32) elementwise(row, type, kLarge);
    }
  }
  void elementwise(const OpRow& row, DType type, const Shape& shape) {
    const bool logical = row.name.substr(0, 8) == "logical_";
    const size_t operands = row.family == Family::unary ? 1 : row.family == Family::binary ? 2 : 3;
    std::vector<TensorType> types(operands, {logical ? DType::Bool : type, shape});
    if (row.op == Op::select) types[0].dtype = DType::Bool;
    std::vector<AttributeMap> attributes(1);
    if (row.op == Op::cast) {
      attributes.clear();
      for (const DType to : {DType::F32, DType::F64, DType::BF16, DType::I32, DType::Bool})
        if (to != type) attributes.push_back(AttributeMap().set("dtype", static_cast<int64_t>(to)));
    }
    for (const AttributeMap& a : attributes) {
      std::vector<TensorType> results;
      try {
        results = row.infer(a, types);
      } catch (const Error&) {
        continue;  // the operation does not exist for this type
      }
      CallExample call{std::string(row.name), a, {}};
      for (size_t i = 0; i < types.size(); ++i) call.inputs.push_back(numbers_of(types[i], seed_ + i));
      add(std::move(call), results);
    }
  }

  bool add(CallExample call, const std::vector<TensorType>& results) {
    CallSiteInfo site;
    site.op = call.op;
    site.attributes = call.attributes;
    for (const HTensor& x : call.inputs) site.inputs.push_back(type_of(x));
    site.outputs = results;
    if (!seen_.insert(site.str()).second) return false;
    calls_.push_back({std::move(call), std::move(site)});
    return true;
  }

  uint64_t seed_;
  std::mt19937_64 generator_;
  std::vector<DeviceCall> calls_;
  std::set<std::string> seen_;
  std::map<std::pair<Op, DType>, size_t> so_many_;
};

}  // namespace

Values DeviceCall::meaning() const {
  Node node{};
  const OpRow* row = find_any_op(call.op);
  node.op = row ? row->op : Op::call;
  node.attributes = call.attributes;
  node.callee = call.op;
  return evaluate_node(node, site.outputs, call.inputs);
}

int64_t DeviceCall::replaced_by(size_t output) const {
  const FunctionalPtr functional = find_any_op(call.op) ? nullptr : FunctionalTable::global().find(call.op);
  if (!functional || functional->traits.update != UpdateKind::one) return -1;
  return output == 0 ? 0 : static_cast<int64_t>(output) + 1;
}

std::vector<DeviceCall> device_calls(uint64_t seed) { return Collection(seed).take(); }

}  // namespace harmonics::engine
