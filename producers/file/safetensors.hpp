// Tensors of a safetensors file as samples: the first axis counts them.
#pragma once

#include <optional>

#include "producers/file/array.hpp"

namespace harmonics {

// The tensor of that name; without one the file must hold a single tensor. The header must describe the file from its
// first to its last byte.
ArrayLayout read_safetensors_array(const FileBytesPtr& file, const std::optional<std::string>& name);

}  // namespace harmonics
