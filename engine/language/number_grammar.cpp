#include "engine/language/number_grammar.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

constexpr size_t kMostDigits = 18;
constexpr const char* kFraction = R"(( "." [0-9]{1,17} )?)";
constexpr const char* kZeroFraction = R"(( "." "0"{1,17} )?)";
// A fraction that is not zero.
constexpr const char* kSomeFraction = R"("." "0"{0,16} [1-9] [0-9]{0,16})";

std::string digits(size_t count) { return count == 0 ? "" : fmt::format(" [0-9]{{{}}}", count); }
std::string one_of(char from, char to) { return fmt::format("[{}-{}]", from, to); }
std::string joined(const std::string& a, const std::string& b) { return a.empty() ? b : b.empty() ? a : a + " | " + b; }
std::string group(const std::string& alternatives) { return "( " + alternatives + " )"; }

// Return the numbers with as many digits as `s` that are at least, or at most, `s`.
std::string from(const std::string& s, size_t at = 0) {
  if (s.find_first_not_of('0', at) == std::string::npos) return digits(s.size() - at);
  std::string same = fmt::format("\"{}\" ", s[at]);
  const std::string rest = from(s, at + 1);
  same += rest.find('|') == std::string::npos ? rest : group(rest);
  return s[at] == '9' ? same : joined(same, one_of(static_cast<char>(s[at] + 1), '9') + digits(s.size() - at - 1));
}
std::string up_to(const std::string& s, size_t at = 0) {
  if (s.find_first_not_of('9', at) == std::string::npos) return digits(s.size() - at);
  std::string same = fmt::format("\"{}\" ", s[at]);
  const std::string rest = up_to(s, at + 1);
  same += rest.find('|') == std::string::npos ? rest : group(rest);
  return s[at] == '0' ? same : joined(one_of('0', static_cast<char>(s[at] - 1)) + digits(s.size() - at - 1), same);
}

// Returns the numbers from a to b, which have as many digits.
std::string between(const std::string& a, const std::string& b, size_t at = 0) {
  if (at == a.size()) return "";
  if (a[at] == b[at]) {
    const std::string rest = between(a, b, at + 1);
    return fmt::format("\"{}\" ", a[at]) + (rest.find('|') == std::string::npos ? rest : group(rest));
  }
  const auto branch = [&](char digit, const std::string& rest) {
    return fmt::format("\"{}\" ", digit) + (rest.find('|') == std::string::npos ? rest : group(rest));
  };
  std::string all = branch(a[at], from(a, at + 1));
  if (b[at] - a[at] > 1)
    all = joined(all, one_of(static_cast<char>(a[at] + 1), static_cast<char>(b[at] - 1)) + digits(a.size() - at - 1));
  return joined(all, branch(b[at], up_to(b, at + 1)));
}

// Returns the integers from `least`, which is not negative, to `most`; without `most`, to the largest ones.
std::string naturals(int64_t least, std::optional<int64_t> most) {
  if (most && *most < least) return "";
  std::string all;
  if (least == 0) {
    all = "\"0\"";
    if (most && *most == 0) return all;
    least = 1;
  }
  const std::string a = std::to_string(least), b = most ? std::to_string(*most) : std::string(kMostDigits, '9');
  if (a.size() == b.size()) return joined(all, between(a, b));
  all = joined(all, between(a, std::string(a.size(), '9')));
  for (size_t length = a.size() + 1; length < b.size(); ++length) all = joined(all, "[1-9]" + digits(length - 1));
  return joined(all, between("1" + std::string(b.size() - 1, '0'), b));
}

// Returns the numbers from `least`, which is not negative, to `most`.
std::string positives(NumberBound least, std::optional<NumberBound> most) {
  if (most && (most->value < least.value || (most->value == least.value && (most->open || least.open)))) return "";
  const std::string first = naturals(least.value, least.value);
  if (most && most->value == least.value) return first + " " + kZeroFraction;
  // Numbers whose integer part is that of the lower bound, larger ones, and the upper bound.
  std::string all = first + " " + (least.open ? kSomeFraction : kFraction);
  const std::string inner = naturals(least.value + 1, most ? std::optional<int64_t>(most->value - 1) : std::nullopt);
  if (!inner.empty()) all = joined(all, group(inner) + " " + kFraction);
  if (most && !most->open) all = joined(all, naturals(most->value, most->value) + " " + kZeroFraction);
  return all;
}

NumberBound mirrored(NumberBound bound) { return {-bound.value, bound.open}; }

// Returns the numbers of both signs, each by `unsigned_numbers` of the magnitudes.
template <typename Unsigned>
std::string both_signs(std::optional<NumberBound> least, std::optional<NumberBound> most, Unsigned unsigned_numbers) {
  std::string all;
  const NumberBound zero{0, false};
  if (!most || most->value >= 0) all = unsigned_numbers(least && least->value >= 0 ? *least : zero, most);
  if (!least || least->value < 0) {
    const NumberBound smallest = most && most->value <= 0 ? mirrored(*most) : zero;
    const std::string negative =
        unsigned_numbers(smallest, least ? std::optional<NumberBound>(mirrored(*least)) : std::nullopt);
    if (!negative.empty()) all = joined(all, "\"-\" " + group(negative));
  }
  return all;
}

}  // namespace

std::string integers_between(std::optional<NumberBound> least, std::optional<NumberBound> most) {
  const auto closed = [](std::optional<NumberBound> bound, int64_t step) {
    if (bound && bound->open) bound = NumberBound{bound->value + step, false};
    return bound;
  };
  return both_signs(closed(least, 1), closed(most, -1), [](NumberBound low, std::optional<NumberBound> high) {
    return naturals(low.value, high ? std::optional<int64_t>(high->value) : std::nullopt);
  });
}

std::string numbers_between(std::optional<NumberBound> least, std::optional<NumberBound> most) {
  return both_signs(least, most, positives);
}

}  // namespace harmonics::engine
