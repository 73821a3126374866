// NPZ, NumPy's archives of arrays: a zip whose members are NAME.npy.
#pragma once

#include <optional>

#include "producers/file/array.hpp"

namespace harmonics {

// Reads the array of that name; without a name the archive must hold a single array.
ArrayLayout read_npz(const FileBytesPtr& archive, const std::optional<std::string>& name);

}  // namespace harmonics
