// Shapes as declared in a flow; -1 is the sequence axis '*'.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace harmonics::engine {

// Returns the number of values per position. make_graph() has refused shapes whose product overflows.
inline int64_t declared_values(const std::vector<int64_t>& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d < 0 ? 1 : d;
  return n;
}

inline std::string shape_text(const std::vector<int64_t>& dims) {
  std::string s = "{";
  for (size_t i = 0; i < dims.size(); ++i)
    s += (i ? ", " : "") + (dims[i] < 0 ? std::string("*") : std::to_string(dims[i]));
  return s + "}";
}

}  // namespace harmonics::engine
