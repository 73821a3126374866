// Functionals of plugins. Their bodies are traced like those of the library.
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
              fmt::format("{} reads the values of its inputs, which a functional cannot do", spoken_name(item)))
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

// Returns the plugin's signature for inputs and results. Its attributes are the item's arguments, except those that
// name layers.
Signature signature_of(const Item& item) {
  const auto& table = item.table<hx_functional_vt>();
  const char* text = HM_TABLE_HAS(table, signature) ? table.signature(item.self) : nullptr;
  Signature s;
  try {
    s = parse_signature(text ? text : "");
  } catch (const Error& e) {
    throw Error(e.kind(), spoken_name(item) + ": " + e.what());
  }
  if (!s.attributes.empty() || (s.known && s.more_attributes))
    throw Error(ErrorKind::Plugin, spoken_name(item) + ": the signature has attributes", {},
                {"declare them as arguments of register_functional"});
  s.more_attributes = false;
  for (const ArgumentSpec& a : item.arguments)
    if (a.type != HX_ARG_LAYER) s.attributes.push_back({a, 0});
  return s;
}

}  // namespace

Functional functional_of(const ItemPtr& item) {
  Functional f;
  f.signature = signature_of(*item);
  f.formula = f.signature.str();
  if (item->flags & HX_UPDATE) f.traits.update = UpdateKind::one;
  f.traits.block_write = (item->flags & HX_BLOCK_WRITE) != 0;
  f.traits.order_free = (item->flags & HX_ORDER_FREE) != 0;
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
