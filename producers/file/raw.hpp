// Raw little-endian numbers: the address gives type and shape of a sample.
#pragma once

#include <optional>

#include "producers/file/array.hpp"

namespace harmonics {

struct RawOptions {
  std::string dtype;    // f32, u8, ...
  std::string shape;    // "28x28"; empty: single numbers
  uint64_t offset = 0;  // bytes before the first sample
};

// Returns the type of a name such as "f32"; empty: unknown.
std::optional<DType> dtype_named(const std::string& name);
// Parses "28x28"; `file` appears in the error.
Shape shape_named(const std::string& text, const std::string& file);
// The file must hold a whole number of samples.
ArrayLayout read_raw(const FileBytesPtr& file, const RawOptions& options);

}  // namespace harmonics
