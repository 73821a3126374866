#include "engine/language/multiple_grammar.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace {

constexpr int64_t kMostListed = 1000;    // multiples that are listed one by one
constexpr int64_t kLargestDivisor = 64;  // of multiples recognized by their remainders
constexpr size_t kMostMultipleDigits = 18;
constexpr int64_t kLargestScaled = 4'000'000'000'000'000'000;

using MultipleBound = std::optional<int64_t>;  // in multiples of the step

[[noreturn]] void refuse_multiples(const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::Usage, what, {}, {remedy});
}

int64_t power_of_ten(size_t exponent) {
  int64_t power = 1;
  for (size_t i = 0; i < exponent; ++i) power *= 10;
  return power;
}

// A number of `value` / 10^decimals.
struct Step {
  int64_t value;
  size_t decimals;
};

Step decimal_step(double step) {
  const auto text = number_bound(step, false);
  if (!text || text->value > kLargestScaled / power_of_ten(text->fraction.size()) - 1)
    refuse_multiples(fmt::format("multiples of {} are not supported", step), "give a step of at most 15 digits");
  const int64_t scale = power_of_ten(text->fraction.size());
  return {text->value * scale + (text->fraction.empty() ? 0 : std::stoll(text->fraction)), text->fraction.size()};
}

// Returns the integer multiples of a step with decimals: 2.5 has those of 5.
Step whole_step(Step step) { return {step.value / std::gcd(step.value, power_of_ten(step.decimals)), 0}; }

int64_t floor_of(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0 ? 1 : 0); }

// Returns the first or last multiple within a bound.
MultipleBound multiple_at(const std::optional<NumberBound>& bound, Step step, bool least) {
  if (!bound) return std::nullopt;
  const int64_t scale = power_of_ten(step.decimals);
  if (std::abs(bound->value) > kLargestScaled / scale - 1)
    refuse_multiples("the bounds of its multiples have too many digits", "give bounds nearer to 0");
  // The bound in units of the last decimal, rounded towards negative infinity.
  const bool negative = bound->value < 0 || bound->below_zero;
  const std::string kept = bound->fraction.substr(0, step.decimals);
  int64_t units = kept.empty() ? 0 : std::stoll(kept + std::string(step.decimals - kept.size(), '0'));
  bool exact = bound->fraction.size() <= step.decimals;
  units = bound->value * scale + (negative ? -units : units);
  if (!exact && negative) --units;
  const int64_t at = floor_of(units, step.value);
  exact = exact && at * step.value == units;
  if (least) return exact && !bound->open ? at : at + 1;
  return exact && bound->open ? at - 1 : at;
}

std::string text_of_multiple(int64_t multiple, Step step) {
  const int64_t units = std::abs(multiple) * step.value, scale = power_of_ten(step.decimals);
  std::string text = fmt::format("{}{}", multiple < 0 ? "-" : "", units / scale);
  if (units % scale == 0) return text;
  std::string fraction = fmt::format("{:0{}}", units % scale, step.decimals);
  while (fraction.ends_with('0')) fraction.pop_back();
  return text + "." + fraction;
}

// The digits of the positive multiples of a divisor: rules for the digits that remain after those with a remainder.
class Remainders {
 public:
  Remainders(int64_t divisor, const std::function<std::string(const std::string&)>& rule)
      : divisor_(divisor), rule_(rule) {}
  std::string positive(size_t most_digits) { return next(0, most_digits, 1); }

 private:
  // Returns the rule of up to `left` further digits after a remainder; nothing if none end at a multiple.
  std::optional<std::string> rest(int64_t remainder, size_t left) {
    if (left == 0) return remainder == 0 ? std::optional<std::string>("") : std::nullopt;
    const auto [at, is_new] = rests_.try_emplace({remainder, left});
    if (!is_new) return at->second;
    std::string all = next(remainder, left, 0);
    if (!all.empty()) all = remainder == 0 ? "( " + all + " )?" : all;
    std::optional<std::string> name = all.empty() ? std::nullopt : std::optional<std::string>(rule_(all));
    if (all.empty() && remainder == 0) name = "";
    return rests_[{remainder, left}] = name;
  }
  std::string next(int64_t remainder, size_t left, int from) {
    std::map<int64_t, std::string> digits;  // by the remainder after them
    for (int d = from; d < 10; ++d) digits[(10 * remainder + d) % divisor_] += static_cast<char>('0' + d);
    std::string all;
    for (const auto& [after, set] : digits)
      if (const auto more = rest(after, left - 1))
        all += fmt::format("{}[{}] {}", all.empty() ? "" : " | ", set, *more);
    return all;
  }

  const int64_t divisor_;
  const std::function<std::string(const std::string&)>& rule_;
  std::map<std::pair<int64_t, size_t>, std::optional<std::string>> rests_;
};

// Returns multiples of a whole step that are not listed.
std::string unlisted(int64_t step, MultipleBound low, MultipleBound high,
                     const std::function<std::string(const std::string&)>& rule) {
  int64_t divisor = step;
  std::string zeros;
  for (; divisor % 10 == 0; divisor /= 10) zeros += '0';
  const bool zero = (!low || *low <= 0) && (!high || *high >= 0);
  std::string positive, negative;
  if (divisor == 1) {
    const auto between = [](MultipleBound from, MultipleBound to) {
      const auto bound = [](MultipleBound b) { return b ? std::optional<NumberBound>(NumberBound{*b}) : std::nullopt; };
      return integers_between(bound(from), bound(to));
    };
    if (!high || *high > 0) positive = between(std::max<int64_t>(low.value_or(1), 1), high);
    if (!low || *low < 0)  // the magnitudes
      negative = between(std::max<int64_t>(high ? -*high : 1, 1), low ? MultipleBound(-*low) : std::nullopt);
  } else {
    if ((low && *low != 0 && *low != 1) || (high && *high != 0 && *high != -1))
      refuse_multiples(fmt::format("more than {} multiples of {} are within its bounds", kMostListed, step),
                       "give bounds that are nearer, none, or 0");
    if (divisor > kLargestDivisor)
      refuse_multiples(fmt::format("more than {} multiples of {} are not supported", kMostListed, step),
                       fmt::format("give bounds, or a step of at most {}, also times a power of ten", kLargestDivisor));
    const std::string all = rule(Remainders(divisor, rule).positive(kMostMultipleDigits - zeros.size()));
    if (!high) positive = all;
    if (!low) negative = all;
  }
  std::string all = zero ? "\"0\"" : "";
  const std::string end = zeros.empty() ? "" : " \"" + zeros + "\"";
  for (const auto& [sign, some] : {std::pair{"", positive}, std::pair{"\"-\" ", negative}})
    if (!some.empty()) all += fmt::format("{}{}( {} ){}", all.empty() ? "" : " | ", sign, some, end);
  return all;
}

}  // namespace

std::string multiples_between(double given, bool whole, const std::optional<NumberBound>& least,
                              const std::optional<NumberBound>& most,
                              const std::function<std::string(const std::string&)>& rule) {
  Step step = decimal_step(given);
  if (whole) step = whole_step(step);
  if (step.value == 1 && step.decimals > 0) return numbers_between(least, most, step.decimals);
  const MultipleBound low = multiple_at(least, step, true), high = multiple_at(most, step, false);
  if (low && high && *high < *low) return "";
  if (!low || !high || *high - *low >= kMostListed) {
    if (step.decimals == 0) return unlisted(step.value, low, high, rule);
    refuse_multiples(fmt::format("more than {} multiples of {} are within its bounds", kMostListed, given),
                     "give minimum and maximum nearer to each other, or a step such as 0.1 or 0.01");
  }
  std::string all;
  for (int64_t multiple = *low; multiple <= *high; ++multiple)
    all += fmt::format("{}\"{}\"", all.empty() ? "" : " | ", text_of_multiple(multiple, step));
  return all;
}

}  // namespace harmonics::engine
