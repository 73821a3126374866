// Checks items with boundary values of their arguments.
#include <cmath>

#include <fmt/core.h>

#include "engine/conformance/item_checks.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/plugin/range.hpp"

namespace harmonics::engine {

namespace {

constexpr double kInside = 1e-6;  // relative distance from an excluded bound

std::optional<AttributeValue> moved(const AttributeValue& end, double by) {
  if (const auto* i = std::get_if<int64_t>(&end)) return *i + static_cast<int64_t>(by > 0 ? 1 : -1);
  if (const auto* f = std::get_if<double>(&end)) return *f + by * std::max(1.0, std::abs(*f));
  return std::nullopt;
}

// Returns the boundary values of an argument: 1e-6 and 1 for "0<..1", both words for "relu|tanh".
std::vector<AttributeValue> ends_of(const ArgumentSpec& a) {
  if (a.type == HX_ARG_BOOL) return {false, true};
  std::vector<AttributeValue> ends;
  const auto add = [&](const std::string& text, double inwards) {
    const std::optional<AttributeValue> end = text.empty() ? std::nullopt : parse_argument(a.type, text);
    if (!end) return;
    const std::optional<AttributeValue> value = in_range(*end, a.range) ? end : moved(*end, inwards);
    if (value && in_range(*value, a.range)) ends.push_back(*value);
  };
  if (a.type == HX_ARG_STRING) {
    for (size_t at = 0; at <= a.range.size();) {
      const size_t end = std::min(a.range.find('|', at), a.range.size());
      add(a.range.substr(at, end - at), 0);
      at = end + 1;
    }
    return ends;
  }
  const size_t dots = a.range.find("..");
  if (a.type == HX_ARG_LAYER || dots == std::string::npos) return ends;
  std::string low = a.range.substr(0, dots), high = a.range.substr(dots + 2);
  if (!low.empty() && low.back() == '<') low.pop_back();
  if (!high.empty() && high.front() == '<') high.erase(0, 1);
  add(low, kInside);
  add(high, -kInside);
  return ends;
}

}  // namespace

std::vector<AttributeMap> arguments_at_their_ends(const Item& item) {
  std::vector<AttributeMap> all;
  for (const ArgumentSpec& a : item.arguments)
    for (const AttributeValue& end : ends_of(a)) all.push_back(arguments_to_try(item).set(a.name, end));
  return all;
}

Finding at_the_ends(const Item& item, const std::function<std::string(const AttributeMap&)>& body) {
  const std::vector<AttributeMap> all = arguments_at_their_ends(item);
  for (const AttributeMap& arguments : all) {
    std::string text;
    try {
      text = body(arguments);
    } catch (const Error& e) {
      text = e.what();
    }
    if (!text.empty())
      return {Finding::Outcome::Failed, fmt::format("with {}: {}", arguments.str(), text),
              "accept the values that the argument's range allows, or narrow it: .in(\"0..1\")"};
  }
  if (all.empty()) return {Finding::Outcome::Passed, "no argument has a range", ""};
  return {Finding::Outcome::Passed, fmt::format("{} ends", all.size()), ""};
}

}  // namespace harmonics::engine
