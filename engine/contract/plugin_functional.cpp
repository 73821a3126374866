// Functionals of plugins: their bodies are traced like the library's.
#include <fmt/core.h>

#include <harmonics/functional_abi.h>

#include "engine/contract/plugin_body.hpp"
#include "engine/contract/plugin_functional.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/program/functional.hpp"

namespace harmonics::engine {

namespace {

[[noreturn]] void refuse(const Item& item, hx_status status) {
  if (status != HX_NEEDS_VALUES) throw plugin_error(item, status);
  throw Error(ErrorKind::Plugin,
              fmt::format("{} reads the numbers of its inputs, which a functional cannot", spoken_name(item)))
      .note(
          "write it with the operations of <harmonics/ops.hpp>, and register what reads numbers as an implementation "
          "of it");
}

Values apply_functional(const Item& item, const AttributeMap& attributes, std::span<const HTensor> inputs) {
  const AttributeMap arguments = complete_arguments(item, attributes);
  const AttributeView view(arguments);
  const std::vector<hx_value*> in = raw(inputs);
  hx_value* out[HX_MAX_RESULTS] = {};
  uint32_t n = 0;
  const hx_status status =
      item.table<hx_functional_vt>().apply(item.self, view.get(), in.data(), static_cast<uint32_t>(in.size()), out, &n);
  if (status != HX_OK) refuse(item, status);
  Values results;
  for (uint32_t i = 0; i < n && i < HX_MAX_RESULTS; ++i) results.push_back(HTensor::adopt(out[i]));
  for (const HTensor& y : results)
    if (!y) throw Error(ErrorKind::Plugin, spoken_name(item) + " returned an empty tensor");
  if (n == 0 || n > HX_MAX_RESULTS)
    throw Error(ErrorKind::Plugin,
                fmt::format("{} gave {} results; from 1 to {} are possible", spoken_name(item), n, HX_MAX_RESULTS));
  return results;
}

Values differentiate(const Item& item, const AttributeMap& attributes, std::span<const HTensor> inputs,
                     std::span<const HTensor> outputs, std::span<const HTensor> output_gradients) {
  const AttributeMap arguments = complete_arguments(item, attributes);
  const AttributeView view(arguments);
  Values dy(output_gradients.begin(), output_gradients.end());
  for (size_t i = 0; i < dy.size(); ++i)
    if (!dy[i]) dy[i] = zeros_like(outputs[i]);
  const std::vector<hx_value*> in = raw(inputs), out = raw(outputs), gradients = raw(dy);
  const hx_gradient_call call{
      sizeof call,     static_cast<uint32_t>(in.size()), static_cast<uint32_t>(out.size()), 0, in.data(), out.data(),
      gradients.data()};
  std::vector<hx_value*> given(in.size(), nullptr);
  const hx_status status = item.table<hx_functional_vt>().gradient(item.self, view.get(), &call, given.data());
  if (status != HX_OK) refuse(item, status);
  Values results;
  for (hx_value* v : given) results.push_back(HTensor::adopt(v));
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i] && type_of(results[i]) != type_of(inputs[i]))
      throw Error(ErrorKind::Plugin,
                  fmt::format("the gradient of {} gives {} for its input {}, which is {}", spoken_name(item),
                              type_of(results[i]).str(), i + 1, type_of(inputs[i]).str()));
  return results;
}

}  // namespace

Functional functional_of(const ItemPtr& item) {
  Functional f;
  std::string arguments;
  for (const ArgumentSpec& a : item->arguments)
    arguments += (arguments.empty() ? "" : ", ") + a.name + (a.default_text.empty() ? "" : " = " + a.default_text);
  f.formula = arguments.empty() ? "..." : "... {" + arguments + "}";
  f.body = [item](const AttributeMap& attributes, std::span<const HTensor> inputs) {
    return apply_functional(*item, attributes, inputs);
  };
  if (!(item->flags & HX_OWN_GRADIENT)) return f;
  if (!HM_TABLE_HAS(item->table<hx_functional_vt>(), gradient))
    throw Error(ErrorKind::Plugin, spoken_name(*item) + " announces a gradient, but its table has none");
  f.gradient = [item](const AttributeMap& attributes, std::span<const HTensor> inputs, std::span<const HTensor> outputs,
                      std::span<const HTensor> output_gradients) {
    return differentiate(*item, attributes, inputs, outputs, output_gradients);
  };
  return f;
}

}  // namespace harmonics::engine
