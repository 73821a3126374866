// Rotary positions of specs: pairing, partial rotation, and the known ways to stretch positions.
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

constexpr const char* kRopeFields[] = {"base",       "dims",       "pairing", "scaling",          "factor",
                                       "beta_fast",  "beta_slow",  "context", "attention_factor", "divided_by",
                                       "low_factor", "high_factor"};

// The fields of a rope, resolved.
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

// Of each pair of dimensions: base^(-2i/d), stretched (Chen et al. 2023).
HTensor stretched(int64_t rotary, double base, double factor) {
  const HTensor exponents =
      cast(iota(DType::I32, Shape{rotary / 2}, 0), DType::F32) * (-2.0 / static_cast<double>(rotary));
  return exp(exponents * std::log(base)) / factor;
}

// Fast pairs turn as they do without scaling, slow ones are stretched, those between are mixed (Peng et al. 2023).
HTensor yarn(const RopeFields& fields, int64_t rotary, double base, double factor) {
  const double context = fields.real("context", 0);
  const auto pair_of = [&](double turns) {  // that makes so many turns within the context
    return static_cast<double>(rotary) * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const double low = std::max(std::floor(pair_of(fields.real("beta_fast", 32))), 0.0);
  double high = std::min(std::ceil(pair_of(fields.real("beta_slow", 1))), static_cast<double>(rotary - 1));
  if (high == low) high += 0.001;
  std::vector<float> all;
  for (int64_t pair = 0; pair < rotary / 2; ++pair) {
    const double own = std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(rotary));
    const double slow = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
    all.push_back(static_cast<float>(own / factor * slow + own * (1 - slow)));
  }
  return HTensor::from(Shape{rotary / 2}, all);
}

// Waves longer than the context by low_factor are stretched, those shorter by high_factor are not, as in Llama 3.1.
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

}  // namespace

HTensor SpecTrace::turned(const HTensor& x, const std::string& name) {
  const auto rope = resolved_.spec().ropes.find(name);
  if (rope == resolved_.spec().ropes.end()) fail(fmt::format("needs {}, which prepare.rope has not", shown_name(name)));
  const std::string place = fmt::format("'{}': {}", resolved_.spec().path, rope->second.place);
  const RopeFields fields(rope->second, variables_, locals_, place);
  const std::string &model = variables_.model(), pairing = fields.text("pairing", "half");
  if (pairing != "half" && pairing != "interleaved")
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': the pairing of rotary positions is half or interleaved, not '{}'", model, pairing));
  const int64_t width = x.shape().back(), rotary = fields.whole("dims", width);
  if (rotary < 2 || rotary > width || rotary % 2 != 0)
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': {} of {} dimensions of a head cannot turn in pairs", model, rotary, width));
  const double base = fields.real("base", 10000), factor = fields.real("factor", 1);
  const double attention = fields.real("attention_factor", 1);
  const std::string scaling = fields.text("scaling", "none");
  const bool none = scaling == "none" && (factor == 1 || factor == 0);
  const bool by_length = scaling == "llama3" && fields.real("context", 0) > 0 &&
                         fields.real("high_factor", 4) > fields.real("low_factor", 1);
  const bool known = none || ((scaling == "linear" || scaling == "yarn" || by_length) && factor > 0);
  if (!known || !(base > 0) || (scaling == "yarn" && (base == 1 || !(fields.real("context", 0) > 0))))
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': the scaling of rotary positions is '{}' with the factor {}, and only linear, "
                            "yarn and llama3 by a positive factor are implemented",
                            model, printable(scaling, 40), factor));
  if (scaling != "yarn" && attention != 1)
    throw Error(ErrorKind::Weights, fmt::format("'{}': rotary positions have the attention factor {}, which is "
                                                "implemented for scaling by yarn only",
                                                model, attention));
  HTensor divisor;
  if (fields.has("divided_by")) {
    const BoundWeight& weight = resolved_.weight(fields.text("divided_by", ""), place, locals_);
    if (!weight.parameter.empty()) divisor = bound(weight, weight.parameter);
  }
  const bool plain = !divisor && (scaling == "none" || (scaling == "linear" && factor == 1));
  AttributeMap how = AttributeMap()
                         .set("operands", plain ? "positions" : "positions,frequencies")
                         .set("positions_first", true)
                         .set("pairing", pairing)
                         .set("rotary_dims", rotary)
                         .set("base", base);
  if (plain) return apply("rope", how, {x, positions_}).at(0);
  HTensor frequencies = scaling == "yarn"     ? yarn(fields, rotary, base, factor)
                        : scaling == "llama3" ? stretched_by_length(fields, rotary, base, factor)
                                              : stretched(rotary, base, scaling == "linear" ? factor : 1);
  if (divisor) frequencies = frequencies / divisor;
  const HTensor result = apply("rope", how, {x, positions_, frequencies}).at(0);
  if (scaling != "yarn") return result;
  const double larger = attention * (1 + 0.1 * std::log(factor));
  if (larger == 1) return result;
  if (rotary != width)
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': scaling by yarn is implemented for heads that turn as a whole, not {} of {} "
                            "dimensions",
                            model, rotary, width));
  return result * larger;
}

}  // namespace harmonics::engine
