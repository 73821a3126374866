// Files of concatenated HXS/1 frames: spools and the output of `harmonics receive` (docs/wire.md).
#pragma once

#include <optional>
#include <string>

#include <harmonics/stream.hpp>

#include "producers/file/bytes.hpp"

namespace harmonics {

bool looks_like_frames(const uint8_t* data, size_t size);

// Opens one tensor of the samples of all DATA frames, in file order. `tensor`: its name; none: the only one. If a file
// has barriers, frames after the last one were never acknowledged and are ignored. Every frame is checked once, on
// opening. Null: the file is valid and has no samples, as the newest file of a spool may be.
std::shared_ptr<Producer> open_frames(const FileBytesPtr& file, const std::optional<std::string>& tensor,
                                      const std::string& part);

}  // namespace harmonics
