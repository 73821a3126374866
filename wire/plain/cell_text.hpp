// What stands in a cell of a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace harmonics {

// One of the spellings of a missing cell.
bool is_missing(std::string_view cell);
std::optional<double> number_in(std::string_view cell);
std::optional<int64_t> integer_in(std::string_view cell);

}  // namespace harmonics
