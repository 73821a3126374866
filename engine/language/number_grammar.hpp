// Grammars (GBNF) of the numbers between two bounds, as JSON texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace harmonics::engine {

// A bound of numbers; `open` excludes the bound itself.
struct NumberBound {
  int64_t value = 0;
  bool open = false;
};

constexpr int64_t kLargestBound = 1'000'000'000'000'000;  // of either sign

// Return the alternatives of a rule, or "" if no number lies between the bounds. Bounds are at most kLargestBound in
// magnitude. Numbers without a bound have at most 18 digits. Fractions have at most 17 digits, and no exponents.
std::string integers_between(std::optional<NumberBound> least, std::optional<NumberBound> most);
std::string numbers_between(std::optional<NumberBound> least, std::optional<NumberBound> most);

}  // namespace harmonics::engine
