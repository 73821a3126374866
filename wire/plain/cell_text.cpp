#include "wire/plain/cell_text.hpp"

#include <charconv>
#include <limits>

namespace harmonics {

bool is_missing(std::string_view cell) {
  for (const std::string_view word : {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"})
    if (cell == word) return true;
  return false;
}

std::optional<double> number_in(std::string_view cell) {
  if (!cell.empty() && cell[0] == '+') cell.remove_prefix(1);
  double value = 0;
  const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (stop != cell.data() + cell.size() || cell.empty()) return std::nullopt;
  return error == std::errc() ? value : std::numeric_limits<double>::infinity();
}

std::optional<int64_t> integer_in(std::string_view cell) {
  if (!cell.empty() && cell[0] == '+') cell.remove_prefix(1);
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || stop != cell.data() + cell.size()) return std::nullopt;
  return value;
}

}  // namespace harmonics
