// Export of a program as C++ source that uses the public headers.
#pragma once

#include <functional>
#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

struct CppSource {
  std::string model;     // for comments
  std::string function;  // an identifier: "forward"
  // Returns the elements of a parameter in declared layout.
  std::function<HTensor(const std::string& name)> value_of;
  uint64_t most_bytes = uint64_t{32} << 20;  // limit for all parameters together
};

// Returns a self-contained C++17 source file with the parameters: a function from inputs to results by name, and a
// main() that reads and writes them as raw numbers. It only needs the library, and computes by the definitions of the
// operations. Throws ErrorKind::Usage for more bytes than `most_bytes`, for states, and for operations that cannot be
// expressed by such definitions.
std::string cpp_source(const Program& program, const CppSource& source);

}  // namespace harmonics::engine
