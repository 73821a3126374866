#include "wire/plain/cell_text.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

namespace harmonics {

bool is_missing(std::string_view cell) {
  for (const std::string_view word : {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"})
    if (cell == word) return true;
  return false;
}

namespace {

// Removes a plus sign before a digit or point. std::from_chars reads only a minus sign.
void pass_plus(std::string_view& cell) {
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
}

// Rounds a number beyond the range of doubles to zero or infinity, by the decimal place of its first digit.
double beyond_range(std::string_view number) {
  const bool negative = number[0] == '-';
  int64_t place = 0, exponent = 0;
  bool point = false, counted = false;
  for (size_t i = negative; i < number.size(); ++i) {
    const char c = number[i];
    if (c == 'e' || c == 'E') {
      number.remove_prefix(std::min(i + 1, number.size()));
      pass_plus(number);
      if (std::from_chars(number.data(), number.data() + number.size(), exponent).ec != std::errc())
        exponent = number[0] == '-' ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int32_t>::max();
      constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
      exponent = std::clamp(exponent, -kMost, kMost);
      break;
    }
    point = point || c == '.';
    counted = counted || (c >= '1' && c <= '9');
    if (c != '.') place += counted ? !point : -int64_t{point};
  }
  const double magnitude = place + exponent < 0 ? 0 : std::numeric_limits<double>::infinity();
  return negative ? -magnitude : magnitude;
}

}  // namespace

std::optional<double> number_in(std::string_view cell) {
  pass_plus(cell);
  double value = 0;
  const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (stop != cell.data() + cell.size() || cell.empty()) return std::nullopt;
  return error == std::errc() ? value : beyond_range(cell);
}

std::optional<int64_t> integer_in(std::string_view cell) {
  pass_plus(cell);
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || stop != cell.data() + cell.size()) return std::nullopt;
  return value;
}

}  // namespace harmonics
