#include "engine/transformer/named_activation.hpp"

#include <algorithm>
#include <map>

#include <harmonics/ops.hpp>

#include "engine/contract/plugin_functions.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

ItemPtr activation_named(const std::string& name) {
  if (FunctionalTable::global().find(name)) return nullptr;
  return Registry::global().find(HX_ACTIVATION, name);
}

bool is_activation(const std::string& name) {
  if (const FunctionalPtr functional = FunctionalTable::global().find(name)) {
    const Signature& signature = functional->signature;
    const bool needs = std::any_of(signature.attributes.begin(), signature.attributes.end(),
                                   [](const AttributeSpec& a) { return a.required; });
    return signature.known && !needs && signature.inputs.size() == 1 && signature.results.size() == 1 &&
           signature.inputs[0].type == signature.results[0].type;
  }
  return activation_named(name) != nullptr;
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names{"silu", "swish", "gelu_new", "gelu_pytorch_tanh", "relu2", "quick_gelu"};
  for (std::string& one : FunctionalTable::global().names())
    if (is_activation(one)) names.push_back(std::move(one));
  for (std::string& one : Registry::global().names(HX_ACTIVATION)) names.push_back(std::move(one));
  return names;
}

SpelledActivation spelled_activation(const std::string& name) {
  using Spelled = SpelledActivation;
  static const std::map<std::string, Spelled> kNames{{"silu", Spelled::silu},
                                                     {"swish", Spelled::silu},
                                                     {"gelu", Spelled::gelu},
                                                     {"gelu_python", Spelled::gelu},
                                                     {"gelu_new", Spelled::gelu_by_tanh},
                                                     {"gelu_fast", Spelled::gelu_by_tanh},
                                                     {"gelu_accurate", Spelled::gelu_by_tanh},
                                                     {"gelu_pytorch_tanh", Spelled::gelu_by_tanh},
                                                     {"gelu_python_tanh", Spelled::gelu_by_tanh},
                                                     {"relu2", Spelled::relu2},
                                                     {"relu_squared", Spelled::relu2},
                                                     {"quick_gelu", Spelled::quick_gelu}};
  const auto at = kNames.find(name);
  return at == kNames.end() ? Spelled::none : at->second;
}

HTensor apply_activation(const std::string& name, const HTensor& x) {
  const auto gelu = [&](const char* how) { return apply("gelu", AttributeMap().set("approximate", how), {x}).at(0); };
  switch (spelled_activation(name)) {
    case SpelledActivation::silu:
      return apply("silu", {}, {x}).at(0);
    case SpelledActivation::gelu:
      return gelu("none");
    case SpelledActivation::gelu_by_tanh:
      return gelu("tanh");
    case SpelledActivation::relu2: {
      const HTensor positive = apply("relu", {}, {x}).at(0);
      return positive * positive;
    }
    case SpelledActivation::quick_gelu:
      return x * logistic(x * 1.702);
    case SpelledActivation::none:
      break;
  }
  if (const ItemPtr registered = activation_named(name))
    return call_activation(registered, bind_arguments(*registered, {}).values, x);
  return is_activation(name) ? apply(name, {}, {x}).at(0) : HTensor();
}

WrittenValue written_value(const specs::Value& value, Span span) {
  WrittenValue written;
  written.span = span;
  if (const auto* whole = std::get_if<int64_t>(&value))
    written.value = WrittenNumber{static_cast<double>(*whole), true};
  if (const auto* real = std::get_if<double>(&value)) written.value = WrittenNumber{*real, false};
  if (const auto* truth = std::get_if<bool>(&value)) written.value = *truth;
  if (const auto* text = std::get_if<std::string>(&value)) written.value = *text;
  return written;
}

}  // namespace harmonics::engine
