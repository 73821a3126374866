// Tensors of a safetensors file as samples: the first axis counts samples.
#pragma once

#include <optional>

#include "producers/file/array.hpp"

namespace harmonics {

// Opens the tensor of that name. Without a name, the file must contain a single tensor. The tensors must cover the
// whole data of the file.
ArrayLayout read_safetensors_array(const FileBytesPtr& file, const std::optional<std::string>& name);

}  // namespace harmonics
