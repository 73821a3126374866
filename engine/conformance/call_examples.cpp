#include "engine/conformance/call_examples.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "engine/conformance/functional_cases.hpp"
#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/signature_calls.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kMostPrimitives = 24;
const std::vector<Shape> kShapes = {{7}, {3, 5}, {3, 37}, {2, 3, 5}, {1, 2, 4, 3}, {1, 1}, {37, 1031}};

std::vector<HTensor> same_shaped(size_t count, const Shape& shape, DType type, uint64_t seed) {
  std::vector<HTensor> inputs;
  for (size_t i = 0; i < count; ++i) inputs.push_back(random_tensor(shape, seed + i, 0.1, 0.9, type));
  return inputs;
}

// Combinations of input shapes: of affine maps, norms and batched products.
const std::vector<std::vector<Shape>> kTogether = {
    {{3, 5}, {4, 5}},         {{3, 5}, {5, 4}},      {{3, 5}, {5}},      {{2, 3, 5}, {2, 5, 4}},
    {{2, 3, 5}, {2, 4, 5}},   {{3, 5}, {3}},         {{3, 5}, {}},       {{5}, {4, 5}},
    {{3, 5}, {4, 5}, {4}},    {{3, 5}, {5, 4}, {4}}, {{3, 5}, {5}, {5}}, {{3, 5}, {5}, {}},
    {{3, 5}, {7, 5}, {7, 4}}, {{3, 5}, {5}, {5}, {}}};

// Returns calls with shapes of kTogether that the body accepts. `inputs` is their number of inputs; 0: that of the
// first accepted call.
std::vector<CallExample> taken_together(const std::string& op, const AttributeMap& attributes, size_t inputs,
                                        DType type, uint64_t seed) {
  std::vector<CallExample> calls;
  for (const std::vector<Shape>& shapes : kTogether) {
    if (inputs ? shapes.size() != inputs : !calls.empty() && shapes.size() != calls.front().inputs.size()) continue;
    CallExample call{op, attributes, {}};
    for (const Shape& shape : shapes)
      call.inputs.push_back(random_tensor(shape, seed + call.inputs.size(), 0.1, 0.9, type));
    try {
      apply(call.op, call.attributes, call.inputs);
      calls.push_back(std::move(call));
    } catch (const Error&) {
    }
  }
  return calls;
}

// Returns calls with `inputs` inputs of one shape that the body accepts. `refused` receives the error of the first
// rejected call.
std::vector<CallExample> taken(const std::string& op, const AttributeMap& attributes, size_t inputs, DType type,
                               uint64_t seed, std::optional<Error>& refused) {
  std::vector<CallExample> calls;
  for (const Shape& shape : kShapes) {
    CallExample call{op, attributes, same_shaped(inputs, shape, type, seed)};
    try {
      apply(call.op, call.attributes, call.inputs);
      calls.push_back(std::move(call));
    } catch (const Error& e) {
      if (!refused) refused = e;
    }
  }
  return calls;
}

bool of_one_shape(const conformance::FunctionalCase& c) {
  return std::all_of(c.inputs.begin(), c.inputs.end(), [&](const conformance::Operand& o) {
    return o.kind == conformance::Operand::number && !o.statistic && o.shape == c.inputs[0].shape;
  });
}

// Returns the conformance cases of a functional, whose tensors are small, and larger calls if all inputs have one
// shape.
std::vector<CallExample> library_calls(const std::string& functional, DType type, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<CallExample> calls, larger;
  for (uint64_t more = 1; more <= 3; ++more)
    for (const conformance::FunctionalCase& c : conformance::functional_cases(seed + more)) {
      if (c.functional != functional) continue;
      calls.push_back({functional, c.attributes, conformance::make_operands(c, type, generator)});
      std::optional<Error> none;
      if (larger.empty() && of_one_shape(c))
        larger = taken(functional, c.attributes, c.inputs.size(), type, seed, none);
    }
  calls.insert(calls.end(), larger.begin(), larger.end());
  return calls;
}

HTensor numbers_for(const TensorType& type, uint64_t seed) {
  if (is_float(type.dtype)) return random_tensor(type.shape, seed, 0.1, 0.9, type.dtype);
  return cast(random_indices(type.shape, seed, 2), type.dtype);
}

// Returns calls of the primitive as in the bodies of the library's functionals.
std::vector<CallExample> primitive_calls(const std::string& primitive, DType type, uint64_t seed) {
  std::vector<CallExample> calls;
  std::set<std::string> seen;
  std::mt19937_64 generator(seed);
  for (const conformance::FunctionalCase& c : conformance::functional_cases(seed + 1)) {
    std::vector<TensorType> types;
    for (const conformance::Operand& o : c.inputs)
      types.push_back(type_of(conformance::make_operand(o, type, generator)));
    const auto body = body_program(*FunctionalTable::global().find(c.functional), c.attributes, types);
    for (const Node& node : body->nodes) {
      if (op_name(node.op) != primitive || calls.size() == kMostPrimitives) continue;
      CallExample call{primitive, node.attributes, {}};
      for (const ValueId v : node.inputs) call.inputs.push_back(numbers_for(body->type(v), seed + v));
      if (seen.insert(call.str()).second) calls.push_back(std::move(call));
    }
  }
  return calls;
}

}  // namespace

std::string CallExample::str() const {
  std::string text = op + attributes.str() + "(";
  for (size_t i = 0; i < inputs.size(); ++i) text += (i ? ", " : "") + type_of(inputs[i]).str();
  return text + ")";
}

std::vector<CallExample> calls_of_item(const Item& functional, DType type, uint64_t seed) {
  const AttributeMap attributes = arguments_to_try(functional);
  if (const FunctionalPtr f = FunctionalTable::global().find(functional.name))
    if (auto calls = calls_by_signature(f->name, f->signature, attributes, type, seed); !calls.empty()) return calls;
  size_t inputs = 1;
  for (const ArgumentSpec& a : functional.arguments) inputs += a.type == HX_ARG_LAYER;
  std::optional<Error> refused;
  for (size_t more = 0; more < 4; ++more) {
    std::vector<CallExample> calls = taken(functional.name, attributes, inputs + more, type, seed, refused);
    if (calls.empty()) continue;
    for (CallExample& call : taken_together(functional.name, attributes, inputs + more, type, seed))
      calls.push_back(std::move(call));
    return calls;
  }
  std::vector<CallExample> calls = taken_together(functional.name, attributes, 0, type, seed);
  if (calls.empty()) throw *refused;
  return calls;
}

std::vector<CallExample> calls_of(const std::string& op, DType type, uint64_t seed) {
  if (find_op(op)) {
    std::vector<CallExample> calls = primitive_calls(op, type, seed);
    std::optional<Error> none;
    for (size_t inputs = 1; inputs < 4 && is_elementwise(find_op(op)->op); ++inputs)
      for (CallExample& call : taken(op, {}, inputs, type, seed, none)) calls.push_back(std::move(call));
    return calls;
  }
  if (FunctionalTable::global().has_own(op)) return library_calls(op, type, seed);
  const ItemPtr item = Registry::global().find(HX_FUNCTIONAL, op);
  return item ? calls_of_item(*item, type, seed) : std::vector<CallExample>{};
}

double tolerance_of(DType type) {
  return type == DType::F64 ? 1e-9 : type == DType::F32 ? 1e-4 : type == DType::F16 ? 5e-3 : 4e-2;
}

std::string difference(const HTensor& got, const HTensor& expected, const char* by, double tolerance) {
  if (!is_float(expected.dtype()))
    return same_bits(got, expected) ? "" : fmt::format("other whole numbers than {}", by);
  const HTensor a = cast(got, DType::F64), b = cast(expected, DType::F64);
  double scale = 1;
  for (int64_t i = 0; i < b.size(); ++i)
    if (std::isfinite(b.data<double>()[i])) scale = std::max(scale, std::abs(b.data<double>()[i]));
  for (int64_t i = 0; i < b.size(); ++i) {
    const double x = a.data<double>()[i], y = b.data<double>()[i];
    if (x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= tolerance * scale) continue;
    return fmt::format("element {} is {:.6g} where {} gives {:.6g}", i, x, by, y);
  }
  return "";
}

CallSiteInfo site_of(const CallExample& call, bool training) {
  CallSiteInfo site;
  site.op = call.op;
  site.attributes = call.attributes;
  site.inputs = types_of(call.inputs);
  site.outputs = types_of(apply(call.op, call.attributes, call.inputs));
  site.device = "cpu";
  site.flags = training ? uint32_t{HX_SITE_TRAINING} : 0u;
  return site;
}

}  // namespace harmonics::engine
