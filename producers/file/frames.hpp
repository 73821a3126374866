// Files of frames HXS/1 back to back: what a spool keeps and `harmonics receive` writes (docs/wire.md).
#pragma once

#include <optional>
#include <string>

#include <harmonics/stream.hpp>

#include "producers/file/bytes.hpp"

namespace harmonics {

bool looks_like_frames(const uint8_t* data, size_t size);

// One tensor of the samples of all DATA frames, in the order of the file; `tensor` by name, or the only one there is.
// Where a file has barriers, what lies behind the last was never promised to anybody and does not count. Every frame is
// checked once, when the file is opened. Null: it is whole and has no sample, as the newest file of a spool may.
std::shared_ptr<Producer> open_frames(const FileBytesPtr& file, const std::optional<std::string>& tensor,
                                      const std::string& part);

}  // namespace harmonics
