#include "engine/language/number_grammar.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

constexpr size_t kMostDigits = 18;
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

// A bound of the digits behind the point. Without zeros at its end; "" and closed below bounds nothing.
struct FractionBound {
  std::string_view digits;
  bool open = false;
};

// Returns the digits, at least `fewest` and at most `most`, of fractions between two bounds; nothing if there are none.
std::optional<std::string> fractions(std::optional<FractionBound> low, std::optional<FractionBound> high, size_t fewest,
                                     size_t most) {
  if (low && low->digits.empty() && !low->open) low.reset();
  const bool above_nothing = high && high->digits.empty(), may_end = !low && !(above_nothing && high->open);
  if (above_nothing && (low || high->open)) return std::nullopt;
  if (most == 0) return may_end && fewest == 0 ? std::optional<std::string>("") : std::nullopt;
  if (above_nothing) return fmt::format("\"0\"{{{},{}}}", fewest, most);
  if (!high && !low) return fmt::format("[0-9]{{{},{}}}", fewest, most);
  if (!high && low->digits.empty())  // not all zeros
    return most == 1 ? "[1-9]" : fmt::format(R"("0"{{0,{0}}} [1-9] [0-9]{{0,{0}}})", most - 1);
  const auto first = [](const std::optional<FractionBound>& bound, char otherwise) {
    return !bound ? otherwise : bound->digits.empty() ? '0' : bound->digits.front();
  };
  const auto rest = [](const FractionBound& bound) {
    return FractionBound{bound.digits.substr(std::min<size_t>(1, bound.digits.size())), bound.open};
  };
  const char from = first(low, '0'), to = first(high, '9');
  if (from > to) return std::nullopt;
  std::string all;
  const auto add = [&](char begin, char end, std::optional<FractionBound> l, std::optional<FractionBound> h) {
    const std::optional<std::string> more = begin > end ? std::nullopt : fractions(l, h, 0, most - 1);
    if (more)
      all = joined(all, one_of(begin, end) + " " + (more->find('|') == std::string::npos ? *more : group(*more)));
  };
  const bool at_low = low.has_value(), at_high = high.has_value();
  if (at_low && at_high && from == to) {
    add(from, to, rest(*low), rest(*high));
  } else {
    if (at_low) add(from, from, rest(*low), std::nullopt);
    add(static_cast<char>(from + (at_low ? 1 : 0)), static_cast<char>(to - (at_high ? 1 : 0)), {}, {});
    if (at_high) add(to, to, std::nullopt, rest(*high));
  }
  if (all.empty()) return may_end && fewest == 0 ? std::optional<std::string>("") : std::nullopt;
  return may_end && fewest == 0 ? group(all) + "?" : all;
}

// Returns the numbers with this integer part whose fraction is between two bounds; "" if there are none.
std::string with_fraction(const std::string& integer, std::optional<FractionBound> low,
                          std::optional<FractionBound> high, size_t decimals) {
  const bool alone = (!low || (low->digits.empty() && !low->open)) && !(high && high->digits.empty() && high->open);
  const std::optional<std::string> digits = decimals ? fractions(low, high, 1, decimals) : std::nullopt;
  if (!digits) return alone ? integer : "";
  return fmt::format("{} ( \".\" {} ){}", integer, digits->find('|') == std::string::npos ? *digits : group(*digits),
                     alone ? "?" : "");
}

// Returns the numbers from `least`, which is not negative, to `most`.
std::string positives(const NumberBound& least, const std::optional<NumberBound>& most, size_t decimals) {
  const FractionBound low{least.fraction, least.open};
  const auto high = [&] { return FractionBound{most->fraction, most->open}; };
  const std::string first = naturals(least.value, least.value);
  if (most && most->value < least.value) return "";
  if (most && most->value == least.value) return with_fraction(first, low, high(), decimals);
  // Numbers whose integer part is that of the lower bound, larger ones, and those of the upper bound.
  std::string all = with_fraction(first, low, std::nullopt, decimals);
  const std::string inner = naturals(least.value + 1, most ? std::optional<int64_t>(most->value - 1) : std::nullopt);
  if (!inner.empty()) all = joined(all, with_fraction(group(inner), std::nullopt, std::nullopt, decimals));
  if (most) all = joined(all, with_fraction(naturals(most->value, most->value), std::nullopt, high(), decimals));
  return all;
}

NumberBound mirrored(const NumberBound& bound) { return {-bound.value, bound.open, bound.fraction, !bound.below_zero}; }

int sign_of(const NumberBound& bound) {
  if (bound.value != 0) return bound.value < 0 ? -1 : 1;
  return bound.fraction.empty() ? 0 : bound.below_zero ? -1 : 1;
}

// Returns the numbers of both signs, each by `unsigned_numbers` of the magnitudes.
template <typename Unsigned>
std::string both_signs(const std::optional<NumberBound>& least, const std::optional<NumberBound>& most,
                       Unsigned unsigned_numbers) {
  std::string all;
  const NumberBound zero{};
  if (!most || sign_of(*most) >= 0) all = unsigned_numbers(least && sign_of(*least) >= 0 ? *least : zero, most);
  if (!least || sign_of(*least) < 0) {
    const NumberBound smallest = most && sign_of(*most) <= 0 ? mirrored(*most) : zero;
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

std::string numbers_between(const std::optional<NumberBound>& least, const std::optional<NumberBound>& most,
                            size_t decimals) {
  return both_signs(least, most, [&](const NumberBound& low, const std::optional<NumberBound>& high) {
    return positives(low, high, decimals);
  });
}

std::optional<NumberBound> number_bound(double value, bool open) {
  if (!(std::fabs(value) <= static_cast<double>(kLargestBound))) return std::nullopt;
  char text[512];
  const auto end = std::to_chars(text, text + sizeof text, std::fabs(value), std::chars_format::fixed).ptr;
  const std::string_view all(text, static_cast<size_t>(end - text));
  const size_t point = all.find('.');
  NumberBound bound{static_cast<int64_t>(value), open, "", value < 0};
  if (point != std::string_view::npos) bound.fraction = all.substr(point + 1);
  while (bound.fraction.ends_with('0')) bound.fraction.pop_back();
  if (bound.fraction.size() > kMostBoundDecimals) return std::nullopt;
  return bound;
}

}  // namespace harmonics::engine
