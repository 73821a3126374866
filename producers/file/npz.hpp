// NPZ, NumPy's archives of arrays: a zip whose members are NAME.npy.
#pragma once

#include <optional>

#include "formats/zip.hpp"
#include "producers/file/array.hpp"

namespace harmonics {

// Reads the array of that name. Without a name, the archive must contain a single array.
ArrayLayout read_npz(const FileBytesPtr& archive, const std::optional<std::string>& name);

// Returns a member's bytes under the name "archive#member": a part of the mapped archive if stored, else unpacked. Size
// and checksum must match the directory.
FileBytesPtr read_zip_member(const FileBytesPtr& archive, const ZipMember& member);

}  // namespace harmonics
