#include "engine/conformance/call_text.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/conformance/functional_cases.hpp"
#include "engine/program/op.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {

// Returns names for `count` inputs: without optional inputs if possible, with numbers for repeated ones. Empty if the
// signature does not allow this count.
std::vector<std::string> input_names(const Signature& signature, size_t count) {
  for (const bool optional : {false, true}) {
    std::vector<const OperandSpec*> inputs;
    for (const OperandSpec& o : signature.inputs)
      if (optional || !o.optional) inputs.push_back(&o);
    const bool repeats = std::any_of(inputs.begin(), inputs.end(), [](const OperandSpec* o) { return o->repeated; });
    if (count < inputs.size() || (count > inputs.size() && !repeats)) continue;
    std::vector<std::string> names;
    for (const OperandSpec* o : inputs) {
      const size_t times = o->repeated ? count - inputs.size() + 1 : 1;
      for (size_t i = 1; i <= times; ++i) names.push_back(times > 1 ? o->name + std::to_string(i) : o->name);
    }
    if (names.size() == count) return names;
  }
  return {};
}

std::vector<std::string> names_of(const CallExample& call) {
  std::vector<std::string> names;
  const OpRow* row = find_op(call.op);
  if (const FunctionalPtr functional = row ? nullptr : FunctionalTable::global().find(call.op))
    names = input_names(functional->signature, call.inputs.size());
  else if (row && row->op == Op::select)
    names = {"condition", "x", "y"};
  for (const char* more = "xyzuvw"; names.size() < call.inputs.size(); ++more)
    names.push_back(*more ? std::string(1, *more) : fmt::format("x{}", names.size()));
  return names;
}

std::string value_text(const AttributeValue& value) {
  const auto listed = [](const auto& numbers, const char* type) {
    std::string text;
    for (const auto n : numbers) text += fmt::format("{}{}", text.empty() ? "" : ", ", n);
    return fmt::format("std::vector<{}>{{{}}}", type, text);
  };
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* f = std::get_if<double>(&value)) return fmt::format("{}", *f);
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* s = std::get_if<std::string>(&value)) return "\"" + *s + "\"";
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) return listed(*ints, "int64_t");
  return listed(std::get<std::vector<double>>(value), "double");
}

bool works(const CallExample& call) {
  try {
    return !apply(call.op, call.attributes, call.inputs).empty();
  } catch (const Error&) {
    return false;
  }
}

// Returns the call without the attributes that it does not need.
CallExample shortened(CallExample call) {
  const AttributeMap all = call.attributes;
  for (const auto& [name, value] : all.entries()) {
    CallExample without = call;
    without.attributes = {};
    for (const auto& [other, kept] : call.attributes.entries())
      if (other != name) without.attributes.set(other, kept);
    if (works(without)) call = std::move(without);
  }
  return call;
}

std::optional<CallExample> shortest(const std::vector<CallExample>& calls) {
  const CallExample* least = nullptr;
  for (const CallExample& call : calls)
    if (!least || call.inputs.size() < least->inputs.size()) least = &call;
  return least ? std::optional<CallExample>(shortened(*least)) : std::nullopt;
}

// Returns calls of a primitive that the bodies of the library's functionals rarely use.
std::vector<CallExample> further_calls(const std::string& primitive) {
  const HTensor x = HTensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const HTensor first = HTensor::from<int64_t>({2}, {0, 1}), scale = HTensor::scalar(0.5f);
  const HTensor pair = HTensor::from<int64_t>({1, 2}, {0, 1});
  const std::vector<CallExample> all = {
      {"full",
       AttributeMap().set("dtype", int64_t{HX_F32}).set("shape", std::vector<int64_t>{2, 3}).set("value", 1.0),
       {}},
      {"random_uniform", AttributeMap().set("stream", int64_t{1}).set("shape", std::vector<int64_t>{2, 3}), {first}},
      {"pad",
       AttributeMap()
           .set("low", std::vector<int64_t>{0, 1})
           .set("high", std::vector<int64_t>{0, 1})
           .set("interior", std::vector<int64_t>{0, 0})
           .set("value", 0.0),
       {x}},
      {"reverse", AttributeMap().set("axes", std::vector<int64_t>{0}), {x}},
      {"argmax", AttributeMap().set("axis", int64_t{1}), {x}},
      {"argmin", AttributeMap().set("axis", int64_t{1}), {x}},
      {"cumsum", AttributeMap().set("axis", int64_t{1}), {x}},
      {"top_k", AttributeMap().set("k", int64_t{2}), {x}},
      {"sort", AttributeMap().set("axis", int64_t{1}), {x}},
      {"bitcast", AttributeMap().set("dtype", int64_t{HX_I32}), {x}},
      {"reduce_min", AttributeMap().set("axes", std::vector<int64_t>{1}), {x}},
      {"reduce_prod", AttributeMap().set("axes", std::vector<int64_t>{1}), {x}},
      {"dynamic_slice", AttributeMap().set("sizes", std::vector<int64_t>{1, 2}), {x, first}},
      {"update_slice", {}, {x, HTensor(DType::F32, {1, 2}), first}},
      {"gather_nd", {}, {x, pair}},
      {"scatter_nd", {}, {x, pair, HTensor(DType::F32, {1})}},
      {"reduce_window",
       AttributeMap()
           .set("reduction", std::string("max"))
           .set("window", std::vector<int64_t>{1, 2})
           .set("strides", std::vector<int64_t>{1, 1})
           .set("padding_low", std::vector<int64_t>{0, 0})
           .set("padding_high", std::vector<int64_t>{0, 0})
           .set("dilation", std::vector<int64_t>{1, 1}),
       {x}},
      {"stop_gradient", {}, {x}},
      {"quantize", AttributeMap().set("dtype", int64_t{HX_I8}), {x, scale, HTensor(DType::I8, {})}},
      {"dequantize", {}, {HTensor(DType::I8, {2, 3}), scale, HTensor(DType::I8, {})}},
  };
  std::vector<CallExample> found;
  for (const CallExample& call : all)
    if (call.op == primitive) found.push_back(call);
  return found;
}

// Returns the calls of an elementwise primitive that it accepts, with f32, bool or i32 inputs of one shape.
std::vector<CallExample> elementwise_calls(const std::string& primitive) {
  std::vector<CallExample> calls;
  const HTensor flags(DType::Bool, {2, 3}), numbers(DType::F32, {2, 3}), wholes(DType::I32, {2, 3});
  for (const std::vector<HTensor>& inputs : std::vector<std::vector<HTensor>>{
           {numbers}, {flags}, {numbers, numbers}, {flags, flags}, {wholes, wholes}, {flags, numbers, numbers}}) {
    CallExample call{primitive, primitive == "cast" ? AttributeMap().set("dtype", int64_t{HX_I32}) : AttributeMap(),
                     inputs};
    if (works(call)) calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace

std::optional<CallExample> shortest_call(const std::string& op) {
  const OpRow* row = find_op(op);
  if (!row) return shortest(calls_of(op, DType::F32, 0));
  if (is_elementwise(row->op)) return shortest(elementwise_calls(op));
  if (std::optional<CallExample> call = shortest(further_calls(op))) return call;
  return shortest(calls_of(op, DType::F32, 0));
}

std::string call_text(const CallExample& call) {
  const std::vector<std::string> names = names_of(call);
  std::string inputs, types, attributes;
  for (size_t i = 0; i < names.size(); ++i) {
    inputs += (i ? ", " : "") + names[i];
    types += (i ? ", " : "") + names[i] + " " + type_of(call.inputs[i]).str();
  }
  for (const auto& [name, value] : call.attributes.entries())
    attributes += fmt::format(".set(\"{}\", {})", name, value_text(value));
  return fmt::format("call(\"{}\", {{{}}}{}){}", call.op, inputs,
                     attributes.empty() ? "" : ", Attributes()" + attributes, types.empty() ? "" : "  // " + types);
}

}  // namespace harmonics::engine
