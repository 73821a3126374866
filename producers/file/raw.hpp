// Raw little-endian numbers: type and shape of a sample come from the address.
#pragma once

#include <optional>

#include "producers/file/array.hpp"

namespace harmonics {

struct RawOptions {
  std::string dtype;    // f32, u8, ...
  std::string shape;    // "28x28"; empty: single numbers
  uint64_t offset = 0;  // bytes before the first sample
};

// "f32" and the like; empty: no such type.
std::optional<DType> dtype_named(const std::string& name);
// The sizes in "28x28"; `file` stands in the refusal.
Shape shape_named(const std::string& text, const std::string& file);
// The file must hold a whole number of samples.
ArrayLayout read_raw(const FileBytesPtr& file, const RawOptions& options);

}  // namespace harmonics
