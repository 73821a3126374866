// Rotary embeddings of specs: pairing, partial rotation and scaling methods.
#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/core.h>

#include <harmonics/ops.hpp>

#include "engine/base/spelling.hpp"
#include "engine/transformer/spec_trace.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr const char* kRopeFields[] = {"base",       "dims",        "pairing",  "scaling",          "factor",
                                       "beta_fast",  "beta_slow",   "context",  "attention_factor", "divided_by",
                                       "low_factor", "high_factor", "truncate", "divided_by_long"};

// Resolved fields of a rope.
class RopeFields {
 public:
  RopeFields(const specs::Rope& rope, Variables& variables, const LocalValues& locals, std::string place)
      : rope_(rope), variables_(variables), locals_(locals), place_(std::move(place)) {
    const std::vector<std::string> known(std::begin(kRopeFields), std::end(kRopeFields));
    for (const auto& [name, value] : rope.fields) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const std::string meant = did_you_mean(name, known);
      throw Error(ErrorKind::Name, fmt::format("{} has the unknown entry {}", place_, shown_name(name)), {},
                  {meant.empty() ? "known entries: " + comma_separated(known) : meant});
    }
  }
  bool has(const char* name) const { return rope_.fields.count(name) != 0; }
  double real(const char* name, double otherwise) const {
    if (!has(name)) return otherwise;
    const specs::Value& value = rope_.fields.at(name);
    if (const auto* number = std::get_if<double>(&value)) return *number;
    return variables_.real(specs::Expression(specs::text_of(value), place_ + "." + name), locals_);
  }
  int64_t whole(const char* name, int64_t otherwise) const {
    if (!has(name)) return otherwise;
    return variables_.whole(specs::Expression(specs::text_of(rope_.fields.at(name)), place_ + "." + name), locals_);
  }
  std::string text(const char* name, const char* otherwise) const {
    return has(name) ? variables_.text(specs::text_of(rope_.fields.at(name)), place_) : otherwise;
  }

 private:
  const specs::Rope& rope_;
  Variables& variables_;
  const LocalValues& locals_;
  std::string place_;
};

// Returns the factor of a scaling. 0 stands for 1, as in GGUF.
double factor_of(const RopeFields& fields, const std::string& scaling) {
  const double factor = fields.real("factor", 1);
  return scaling == "none" || factor == 0 ? 1 : factor;
}

// Returns the frequencies base^(-2i/d) of pairs of dimensions, divided by `factor`: linear scaling (Chen et al. 2023).
HTensor stretched(int64_t rotary, double base, double factor) {
  const HTensor exponents =
      cast(iota(DType::I32, Shape{rotary / 2}, 0), DType::F32) * (-2.0 / static_cast<double>(rotary));
  return exp(exponents * std::log(base)) / factor;
}

// Returns the frequencies of YaRN: unchanged for fast pairs, divided by `factor` for slow ones, and interpolated in
// between (Peng et al. 2023).
HTensor yarn(const RopeFields& fields, int64_t rotary, double base, double factor) {
  const double context = fields.real("context", 0);
  const auto pair_of = [&](double turns) {  // index of the pair that makes this many turns within the context
    return static_cast<double>(rotary) * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = pair_of(fields.real("beta_fast", 32)), high = pair_of(fields.real("beta_slow", 1));
  if (fields.whole("truncate", 1) != 0) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rotary - 1));
  if (high == low) high += 0.001;
  std::vector<float> all;
  for (int64_t pair = 0; pair < rotary / 2; ++pair) {
    const double own = std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary));
    const double slow = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
    all.push_back(static_cast<float>(own / factor * slow + own * (1 - slow)));
  }
  return HTensor::from(Shape{rotary / 2}, all);
}

// Returns the frequencies of Llama 3.1: divided by `factor` for fewer than low_factor turns within the context,
// unchanged for more than high_factor turns, and interpolated in between.
HTensor stretched_by_length(const RopeFields& fields, int64_t rotary, double base, double factor) {
  const double context = fields.real("context", 0), low = fields.real("low_factor", 1),
               high = fields.real("high_factor", 4);
  std::vector<float> all;
  for (int64_t pair = 0; pair < rotary / 2; ++pair) {
    const double own = std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary));
    const double turns = context * own / (2 * std::numbers::pi);
    const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
    all.push_back(static_cast<float>(own / factor * (1 - kept) + own * kept));
  }
  return HTensor::from(Shape{rotary / 2}, all);
}

// Returns the base with which, beyond the context, the slowest pair has the same frequency as with linear scaling
// (dynamic NTK scaling, bloc97 and emozilla 2023).
double longer_base(int64_t rotary, double base, double factor, double context, double length) {
  const double dims = static_cast<double>(rotary);
  return base * std::pow(factor * std::max(length / context, 1.0) - (factor - 1), dims / (dims - 2));
}

constexpr const char* kScalings[] = {"none", "linear", "yarn", "llama3", "dynamic", "longrope"};

// Throws ErrorKind::Weights for an unknown scaling, or invalid or missing settings.
void expect_scaling(const RopeFields& fields, const std::string& model, const std::string& scaling, double base,
                    int64_t rotary) {
  const double factor = factor_of(fields, scaling), context = fields.real("context", 0);
  const bool known = std::find(std::begin(kScalings), std::end(kScalings), scaling) != std::end(kScalings);
  if (!known || !(factor > 0 || scaling == "longrope") || !(base > 0))
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': the scaling of rotary positions is '{}' with the factor {}, and only linear, yarn, "
                            "llama3, dynamic and longrope by a positive factor are implemented",
                            model, printable(scaling, 40), factor));
  const bool complete = scaling == "yarn" ? base != 1 && context > 0
                        : scaling == "llama3"
                            ? context > 0 && fields.real("high_factor", 4) > fields.real("low_factor", 1)
                        : scaling == "dynamic" ? context > 0 && rotary > 2 && factor >= 1
                                               : true;
  if (!complete)
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': rotary positions cannot be scaled by {} with the base {}, the factor {} and the "
                            "context {}",
                            model, scaling, base, factor, context));
}

}  // namespace

int64_t ResolvedSpec::covered_context() const {
  constexpr double kAny = 1 << 30;  // dynamic scaling adapts to each length
  double most = 0;
  for (const auto& [name, rope] : spec_.ropes) {
    const LocalValues none{};
    const RopeFields fields(rope, *variables_, none, fmt::format("'{}': {}", spec_.path, rope.place));
    const std::string scaling = fields.text("scaling", "none");
    const double original = fields.real("context", 0);
    if (scaling == "dynamic") most = kAny;
    if (scaling == "linear" || scaling == "yarn" || scaling == "llama3")
      most = std::max(most, factor_of(fields, scaling) * (original > 0 ? original : static_cast<double>(context_)));
  }
  return std::max(context_, static_cast<int64_t>(std::min(most, kAny)));
}

// Returns the divisors of the frequencies of each pair; empty: none. Separate factors apply if sequences may exceed the
// original context of the model.
HTensor SpecTrace::rope_divisor(const specs::Rope& rope, const std::string& place, double context, int64_t pairs) {
  const bool longer = context > 0 && static_cast<double>(resolved_.length()) > context;
  if (const auto list = rope.lists.find(longer ? "long_factors" : "short_factors"); list != rope.lists.end()) {
    if (static_cast<int64_t>(list->second.size()) != pairs)
      throw Error(ErrorKind::Weights, fmt::format("{}: {} factors of rotary positions for {} pairs of dimensions",
                                                  place, list->second.size(), pairs));
    return HTensor::from(Shape{pairs}, std::vector<float>(list->second.begin(), list->second.end()));
  }
  for (const char* field : {"divided_by_long", "divided_by"}) {
    const auto given = rope.fields.find(field);
    if (given == rope.fields.end() || (!longer && field == std::string("divided_by_long"))) continue;
    const BoundWeight& weight = resolved_.weight(variables_.text(specs::text_of(given->second), place), place, locals_);
    if (!weight.parameter.empty()) return bound(weight, weight.parameter);
  }
  return {};
}

HTensor SpecTrace::turned(const HTensor& x, const std::string& name) {
  const auto rope = resolved_.spec().ropes.find(name);
  if (rope == resolved_.spec().ropes.end())
    fail(fmt::format("needs {}, which prepare.rope does not have", shown_name(name)));
  const std::string place = fmt::format("'{}': {}", resolved_.spec().path, rope->second.place);
  const RopeFields fields(rope->second, variables_, locals_, place);
  const std::string &model = variables_.model(), pairing = fields.text("pairing", "half");
  if (pairing != "half" && pairing != "interleaved")
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': the pairing of rotary positions is half or interleaved, not '{}'", model, pairing));
  const int64_t width = x.shape().back(), rotary = fields.whole("dims", width);
  if (rotary < 2 || rotary > width || rotary % 2 != 0)
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': {} of {} dimensions of a head cannot be rotated in pairs", model, rotary, width));
  const std::string scaling = fields.text("scaling", "none");
  const double base = fields.real("base", 10000), factor = factor_of(fields, scaling),
               context = fields.real("context", 0);
  expect_scaling(fields, model, scaling, base, rotary);
  const HTensor divisor = rope_divisor(rope->second, place, context, rotary / 2);
  if (scaling == "longrope" && !divisor)
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': rotary positions scaled by longrope need the factors of each pair", model));
  // Scaling queries and keys sharpens attention. For YaRN, the spec's factor multiplies the usual one.
  const double larger = fields.real("attention_factor", 1) * (scaling == "yarn" ? 1 + 0.1 * std::log(factor) : 1);
  const auto length = static_cast<double>(resolved_.length());
  const bool plain = !divisor && (scaling == "none" || (scaling == "linear" && factor == 1));
  AttributeMap how = AttributeMap()
                         .set("operands", plain ? "positions" : "positions,frequencies")
                         .set("positions_first", true)
                         .set("pairing", pairing)
                         .set("rotary_dims", rotary)
                         .set("base", base);
  HTensor frequencies;
  if (!plain)
    frequencies = scaling == "yarn"      ? yarn(fields, rotary, base, factor)
                  : scaling == "llama3"  ? stretched_by_length(fields, rotary, base, factor)
                  : scaling == "dynamic" ? stretched(rotary, longer_base(rotary, base, factor, context, length), 1)
                                         : stretched(rotary, base, scaling == "linear" ? factor : 1);
  if (divisor) frequencies = frequencies / divisor;
  const HTensor result =
      (plain ? apply("rope", how, {x, positions_}) : apply("rope", how, {x, positions_, frequencies})).at(0);
  if (larger == 1) return result;
  if (rotary == width) return result * larger;
  const int64_t axis = x.rank() - 1;
  return concat({slice_axis(result, axis, 0, rotary) * larger, slice_axis(result, axis, rotary, width)}, axis);
}

}  // namespace harmonics::engine
