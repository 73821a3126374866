// Grammars (GBNF) of the numbers between two bounds, as JSON texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace harmonics::engine {

// A bound of numbers; `open` excludes the bound itself.
struct NumberBound {
  int64_t value = 0;  // rounded towards zero
  bool open = false;
  std::string fraction = "";  // decimals without zeros at the end
  bool below_zero = false;    // the sign of bounds between -1 and 1
};

constexpr int64_t kLargestBound = 1'000'000'000'000'000;  // of either sign
constexpr size_t kMostDecimals = 17, kMostBoundDecimals = 15;

// Returns the bound with the shortest decimals that are read as this number; nothing beyond kLargestBound, or with more
// than kMostBoundDecimals decimals.
std::optional<NumberBound> number_bound(double value, bool open);

// Return the alternatives of a rule, or "" if no number lies between the bounds. Bounds are at most kLargestBound in
// magnitude, those of integers without fractions. Numbers without a bound have at most 18 digits. Fractions have at
// most `decimals` digits, and no exponents.
std::string integers_between(std::optional<NumberBound> least, std::optional<NumberBound> most);
std::string numbers_between(const std::optional<NumberBound>& least, const std::optional<NumberBound>& most,
                            size_t decimals = kMostDecimals);

}  // namespace harmonics::engine
