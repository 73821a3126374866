// The text of a table cell.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace harmonics {

// Whether this is one of the spellings of a missing cell.
bool is_missing(std::string_view cell);
std::optional<double> number_in(std::string_view cell);
std::optional<int64_t> integer_in(std::string_view cell);

}  // namespace harmonics
