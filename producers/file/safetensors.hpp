// Tensors of a safetensors file as samples: the first axis counts them.
#pragma once

#include <optional>

#include "producers/file/array.hpp"

namespace harmonics {

// Opens the tensor of that name; without a name the file must hold a single tensor. The header must cover the file
// from its first to its last byte.
ArrayLayout read_safetensors_array(const FileBytesPtr& file, const std::optional<std::string>& name);

}  // namespace harmonics
