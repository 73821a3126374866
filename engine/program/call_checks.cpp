// Checks of calls against the signatures of functionals.
#include <algorithm>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/plugin/range.hpp"
#include "engine/program/signature.hpp"

namespace harmonics::engine {

namespace {

std::string text_of(const AttributeValue& value) {
  const std::string text = AttributeMap().set("x", value).str();  // "{x = 3}"
  return text.substr(5, text.size() - 6);
}

bool equal_values(const AttributeValue& a, const AttributeValue& b) {
  const auto number = [](const AttributeValue& v) -> std::optional<double> {
    if (const auto* i = std::get_if<int64_t>(&v)) return static_cast<double>(*i);
    if (const auto* d = std::get_if<double>(&v)) return *d;
    return std::nullopt;
  };
  const auto x = number(a), y = number(b);
  return x && y ? *x == *y : a == b;
}

bool has_default(const AttributeSpec& spec, const AttributeValue& value) {
  const auto otherwise = spec.value_if_absent();
  return otherwise && equal_values(value, *otherwise);
}

void check_value(std::string_view op, const AttributeSpec& spec, const AttributeValue& value) {
  if (!is_argument_value(spec.type, value))
    throw Error(ErrorKind::Type, fmt::format("{}: {} is {}; it must be {}", op, spec.name, text_of(value),
                                             argument_type_name(spec.type)));
  if (spec.range.empty() || in_range(value, spec.range) || has_default(spec, value)) return;
  throw Error(ErrorKind::Type,
              fmt::format("{}: {} is {}; give {}", op, spec.name, text_of(value), spoken_range(spec.range)));
}

}  // namespace

void check_inputs(std::string_view op, const Signature& signature, size_t inputs) {
  const size_t least = signature.fewest_inputs(), most = signature.most_inputs();
  if (!signature.known || (inputs >= least && inputs <= most)) return;
  const std::string count = most == least      ? quantity(least, "input")
                            : most == SIZE_MAX ? "at least " + quantity(least, "input")
                                               : fmt::format("{} to {}", least, quantity(most, "input"));
  throw Error(ErrorKind::Shape, fmt::format("{}: takes {}, got {}", op, count, inputs))
      .note("note: it is " + signature.str());
}

Error unknown_attribute(std::string_view op, const Signature& signature, std::string_view name) {
  std::vector<std::string> known;
  for (const AttributeSpec& a : signature.attributes) known.push_back(a.name);
  Error error(ErrorKind::Name, fmt::format("{} has no attribute '{}'", op, name));
  if (auto near = nearest(name, known)) return error.note("did you mean '" + *near + "'?");
  return error.note(known.empty() ? "it has none" : "it has " + comma_separated(known));
}

void check_attributes(std::string_view op, const Signature& signature, const AttributeMap& attributes) {
  for (const auto& [name, value] : attributes.entries()) {
    if (const AttributeSpec* spec = signature.attribute(name))
      check_value(op, *spec, value);
    else if (!signature.more_attributes)
      throw unknown_attribute(op, signature, name);
  }
  for (const AttributeSpec& a : signature.attributes)
    if (a.required && !attributes.has(a.name))
      throw Error(ErrorKind::Name, fmt::format("{} needs the attribute '{}'{}", op, a.name,
                                               a.description.empty() ? "" : ": " + a.description));
}

bool has_defaults(const Signature& signature, const AttributeMap& attributes) {
  return std::all_of(attributes.entries().begin(), attributes.entries().end(), [&](const auto& entry) {
    const AttributeSpec* spec = signature.attribute(entry.first);
    return spec && has_default(*spec, entry.second);
  });
}

uint16_t contract_minor(const Signature& signature, const AttributeMap& attributes) {
  uint16_t minor = 0;
  for (const AttributeSpec& a : signature.attributes)
    if (const AttributeValue* value = a.since > minor ? attributes.find(a.name) : nullptr;
        value && !has_default(a, *value))
      minor = a.since;
  return minor;
}

}  // namespace harmonics::engine
