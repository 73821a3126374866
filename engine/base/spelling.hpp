// "did you mean": the known word nearest to a misspelt one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics {

// Damerau-Levenshtein distance (adjacent swaps count one).
size_t edit_distance(std::string_view a, std::string_view b);
// The nearest known word within a third of its length (at least 1), ties by order.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace harmonics
