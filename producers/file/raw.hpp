// Raw little-endian numbers, with the sample's type and shape given by the address.
#pragma once

#include <optional>

#include "producers/file/array.hpp"

namespace harmonics {

struct RawOptions {
  std::string dtype;    // f32, u8, ...
  std::string shape;    // "28x28"; empty: single numbers
  uint64_t offset = 0;  // bytes before the first sample
};

// Returns the type named "f32" or similar; empty: unknown.
std::optional<DType> dtype_named(const std::string& name);
// Parses "28x28"; `file` appears in the error.
Shape shape_named(const std::string& text, const std::string& file);
// Reads the file, which must contain a whole number of samples.
ArrayLayout read_raw(const FileBytesPtr& file, const RawOptions& options);

}  // namespace harmonics
