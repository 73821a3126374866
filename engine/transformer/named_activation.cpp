#include "engine/transformer/named_activation.hpp"

#include "engine/program/functional.hpp"

namespace harmonics::engine {

ItemPtr activation_named(const std::string& name) {
  if (FunctionalTable::global().find(name)) return nullptr;
  return Registry::global().find(HX_ACTIVATION, name);
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
