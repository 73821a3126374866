// Lists of metadata that repeat one value for each block of a model.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

namespace harmonics::engine {

// Returns the value of all items; none: they differ, or there are none.
template <typename T>
std::optional<T> repeated_value(const std::vector<T>& items) {
  const bool same = std::all_of(items.begin(), items.end(), [&](const T& item) { return item == items[0]; });
  return same && !items.empty() ? std::optional<T>(items[0]) : std::nullopt;
}

}  // namespace harmonics::engine
