// The text of a table cell.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace harmonics {

// Returns whether the cell has one of the spellings of a missing value.
bool is_missing(std::string_view cell);
std::optional<double> number_in(std::string_view cell);
std::optional<int64_t> integer_in(std::string_view cell);

}  // namespace harmonics
