// A program as C++ over the public headers.
#pragma once

#include <functional>
#include <string>

#include "engine/program/program.hpp"

namespace harmonics::engine {

struct CppSource {
  std::string model;     // for comments
  std::string function;  // an identifier: "forward"
  // The elements of a parameter, in declared layout.
  std::function<HTensor(const std::string& name)> value_of;
  uint64_t most_bytes = uint64_t{32} << 20;  // of all parameters
};

// One file that holds the parameters and needs the library alone: a function from inputs to results by name, and a
// main() that reads and writes them as raw numbers. C++17; it computes by the definitions of the operations. Throws
// ErrorKind::Usage for more bytes than `most_bytes`, for states, and for operations with code of their own.
std::string cpp_source(const Program& program, const CppSource& source);

}  // namespace harmonics::engine
