// NPY, NumPy's array format, versions 1 to 3.
#pragma once

#include "producers/file/array.hpp"

namespace harmonics {

// Reads the array that begins at `offset`; `end` receives the offset after its last element. The first axis counts
// samples.
ArrayLayout read_npy_at(const FileBytesPtr& file, size_t offset, size_t& end);
// Reads a file that holds exactly one array.
ArrayLayout read_npy(const FileBytesPtr& file);

}  // namespace harmonics
