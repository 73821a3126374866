#include "engine/transformer/variables.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/model/repeated_value.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kLength = "@len:", kPeriod = "@period:";

specs::Value value_of_text(const std::string& text) {
  const char *from = text.data(), *to = from + text.size();
  int64_t whole = 0;
  if (const auto read = std::from_chars(from, to, whole); read.ec == std::errc() && read.ptr == to) return whole;
  double real = 0;
  if (const auto read = std::from_chars(from, to, real);
      read.ec == std::errc() && read.ptr == to && std::isfinite(real))
    return real;
  return text;
}

// Returns P if every P-th item, and no other, is 0; one more than the number of items if none is 0.
std::optional<int64_t> period_of(const std::vector<int64_t>& items) {
  const auto first = std::find(items.begin(), items.end(), 0);
  const int64_t period = first - items.begin() + 1;
  for (size_t i = 0; i < items.size(); ++i)
    if ((items[i] == 0) != ((static_cast<int64_t>(i) + 1) % period == 0)) return std::nullopt;
  return period;
}

// Returns all variables that a spec mentions.
std::set<std::string> variables_of(const specs::Spec& spec) {
  std::set<std::string> all;
  for (const auto& [variable, keys] : spec.keys) all.insert(variable);
  for (const auto& [variable, value] : spec.defaults) all.insert(variable);
  for (const auto& [variable, value] : spec.globals) all.insert(variable);
  return all;
}

}  // namespace

MissingVariable::MissingVariable(const std::string& model, const std::string& variable, const std::string& place,
                                 const std::vector<std::string>& remedies)
    : Error(ErrorKind::Weights,
            fmt::format("'{}': the variable '{}' has no value; it is needed at {}", model, variable, place), {},
            remedies),
      variable_(variable),
      place_(place) {}

Variables::Variables(const specs::Spec& spec, const ModelMetadata& metadata, RowsOf rows_of, SpecOverrides overrides,
                     std::string model)
    : spec_(spec),
      metadata_(metadata),
      rows_of_(std::move(rows_of)),
      overrides_(std::move(overrides)),
      model_(std::move(model)) {
  const std::set<std::string> known = variables_of(spec);
  for (const auto& [variable, text] : overrides_) {
    if (known.count(variable)) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    const std::string meant = did_you_mean(variable, names);
    throw Error(ErrorKind::Usage, fmt::format("the spec '{}' has no variable {}", spec.path, shown_name(variable)), {},
                {meant.empty() ? "variables: " + comma_separated(names) : meant});
  }
}

std::optional<ResolvedValue> Variables::of_metadata(const std::string& variable) {
  const auto keys = spec_.keys.find(variable);
  if (keys == spec_.keys.end()) return {};
  for (const std::string& key : keys->second) {
    if (key.starts_with(kLength)) {
      const std::string of = key.substr(kLength.size());
      const AttributeValue* list = metadata_.values().find(of);
      if (list && std::holds_alternative<std::vector<int64_t>>(*list))
        return ResolvedValue{static_cast<int64_t>(std::get<std::vector<int64_t>>(*list).size()), "metadata " + key};
      if (list && std::holds_alternative<std::vector<double>>(*list))
        return ResolvedValue{static_cast<int64_t>(std::get<std::vector<double>>(*list).size()), "metadata " + key};
      if (metadata_.has(key)) return ResolvedValue{metadata_.integer(key), "metadata " + key};
      if (const auto rows = rows_of_(of)) return ResolvedValue{*rows, "rows of the tensor " + of};
      continue;
    }
    const bool period = key.starts_with(kPeriod);
    const std::string name = period ? key.substr(kPeriod.size()) : key, origin = "metadata " + name;
    const AttributeValue* found = metadata_.values().find(name);
    if (!found) continue;
    if (const auto* whole = std::get_if<int64_t>(found)) return ResolvedValue{*whole, origin};
    if (const auto* real = std::get_if<double>(found)) return ResolvedValue{*real, origin};
    if (const auto* truth = std::get_if<bool>(found)) return ResolvedValue{int64_t{*truth}, origin};
    if (const auto* text = std::get_if<std::string>(found)) return ResolvedValue{*text, origin};
    if (const auto* list = std::get_if<std::vector<int64_t>>(found))
      if (const auto value = period ? period_of(*list) : repeated_value(*list)) return ResolvedValue{*value, origin};
    if (const auto* list = std::get_if<std::vector<double>>(found); list && !period)
      if (const auto value = repeated_value(*list)) return ResolvedValue{*value, origin};
    throw Error(
        ErrorKind::Weights,
        fmt::format("'{}': the metadata '{}' is a list {}", model_, printable(name, 80),
                    period ? "whose false items are not those of every N-th block; only such lists are "
                             "implemented"
                           : fmt::format("of values that differ; the variable '{}' needs one value", variable)));
  }
  return {};
}

ResolvedValue Variables::evaluated(const specs::Value& value, const std::string& place, const std::string& origin) {
  const auto* text = std::get_if<std::string>(&value);
  if (!text) return {value, origin};
  if (text->starts_with("'")) return {text->substr(1, text->size() - (text->ends_with("'") ? 2 : 1)), origin};
  const specs::Expression expression(*text, place);
  bool real = expression.has_reals();
  for (const std::string& variable : expression.variables()) {
    const specs::Value& of = this->value(variable, place).value;
    if (std::holds_alternative<double>(of)) real = true;
  }
  if (!real) return {whole(expression), origin + " = " + *text};
  return {this->real(expression), origin + " = " + *text};
}

std::optional<ResolvedValue> Variables::found(const std::string& variable) {
  if (const auto at = overrides_.find(variable); at != overrides_.end())
    return ResolvedValue{value_of_text(at->second), fmt::format("--set {}={}", variable, at->second)};
  if (const auto at = spec_.globals.find(variable); at != spec_.globals.end())
    return evaluated(at->second, fmt::format("'{}': prepare.globals.{}", spec_.path, variable),
                     "spec, prepare.globals");
  if (const auto value = of_metadata(variable)) return value;
  if (const auto at = spec_.defaults.find(variable); at != spec_.defaults.end())
    return evaluated(at->second, fmt::format("'{}': metadata_keys.defaults.{}", spec_.path, variable), "spec, default");
  return {};
}

const ResolvedValue& Variables::value(const std::string& variable, const std::string& place) {
  if (const auto at = resolved_.find(variable); at != resolved_.end()) return at->second;
  if (!open_.insert(variable).second)
    throw Error(ErrorKind::Weights, fmt::format("the variable '{}' depends on itself, at {}", variable, place));
  const auto result = found(variable);
  open_.erase(variable);
  if (result) return resolved_.emplace(variable, *result).first->second;
  const auto keys = spec_.keys.find(variable);
  std::string wanted;
  if (keys != spec_.keys.end()) wanted = comma_separated(keys->second);
  throw MissingVariable(
      model_, variable, place,
      {wanted.empty() ? fmt::format("the metadata: list its keys under metadata_keys.keys.{} of the spec", variable)
                      : fmt::format("the metadata: {} in the file of the weights", wanted),
       fmt::format("the spec: prepare.globals.{} in '{}'", variable, spec_.path),
       fmt::format("the run: --set {}=VALUE", variable)});
}

specs::Lookup Variables::lookup(const specs::Expression& expression, const LocalValues& locals) {
  return [&](const std::string& variable) -> specs::Number {
    if (const auto at = locals.find(variable); at != locals.end()) return at->second;
    const specs::Value& found = value(variable, expression.place()).value;
    if (const auto* whole = std::get_if<int64_t>(&found)) return *whole;
    if (const auto* real = std::get_if<double>(&found)) return *real;
    if (const auto* truth = std::get_if<bool>(&found)) return int64_t{*truth};
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': the variable '{}' is '{}', but a number is needed at {}", model_, variable,
                            printable(std::get<std::string>(found), 80), expression.place()));
  };
}

int64_t Variables::whole(const specs::Expression& expression, const LocalValues& locals) {
  return expression.whole(lookup(expression, locals));
}

double Variables::real(const specs::Expression& expression, const LocalValues& locals) {
  return expression.real(lookup(expression, locals));
}

std::string Variables::text(const std::string& text, const std::string& place) {
  if (text.size() < 3 || text.front() != '{' || text.back() != '}') return text;
  return specs::text_of(value(text.substr(1, text.size() - 2), place).value);
}

std::string Variables::interpolated(const std::string& text, const std::string& place, const LocalValues& locals) {
  std::string result;
  size_t at = 0;
  for (size_t open = 0; (open = text.find('{', at)) != std::string::npos;) {
    const size_t close = text.find('}', open);
    if (close == std::string::npos)
      throw Error(ErrorKind::Syntax, fmt::format("{}: '}}' is missing in {}", place, shown_name(text)));
    result += text.substr(at, open - at);
    const std::string variable = text.substr(open + 1, close - open - 1);
    const auto local = locals.find(variable);
    result += local != locals.end() ? std::to_string(local->second) : specs::text_of(value(variable, place).value);
    at = close + 1;
  }
  return result + text.substr(at);
}

std::string Variables::tensor(const std::string& name, const std::string& place, const LocalValues& locals,
                              std::string* first) {
  const auto at = spec_.tensor_names.find(name);
  if (at == spec_.tensor_names.end()) {
    std::vector<std::string> known;
    for (const auto& [other, names] : spec_.tensor_names) known.push_back(other);
    const std::string meant = did_you_mean(name, known);
    throw Error(ErrorKind::Name, fmt::format("{}: tensor_names has no {}", place, shown_name(name)), {},
                {meant.empty() ? "tensors: " + comma_separated(known) : meant});
  }
  for (const std::string& candidate : at->second) {
    const std::string tensor = interpolated(candidate, place, locals);
    if (first && first->empty()) *first = tensor;
    if (rows_of_(tensor)) return tensor;
  }
  return "";
}

}  // namespace harmonics::engine
