// Handling of a damaged segment: finding whole frames after the damage, and keeping the file for inspection.
#pragma once

#include <optional>
#include <string>

#include "engine/base/file.hpp"
#include "wire/frame.hpp"

namespace harmonics::engine::spool {

// The location of a damaged frame in a file, and what is known from the frames before it.
struct Break {
  uint64_t at = 0, until = 0;  // byte offsets: of the damaged frame; of the end of the file's valid part
  std::string stream, source;  // "": the damaged frame is the first
  uint64_t next = 0;           // the lowest number that the next sample may have
};

// Returns the offset of the next whole frame of the stream after a damaged one, if there is one. If the damaged
// frame's length leads to a whole frame, it is trusted, so that bytes within a sample are not mistaken for a frame.
// Otherwise the next 128 MiB of the file are searched.
std::optional<uint64_t> whole_frame_behind(const std::string& path, const Break& damaged, FileCalls& calls);

// Move or copy a file under this name into the folder `aside`, which is created if needed; a number is added if the
// name exists. The file and its name are on disk when these return the new path. They throw ErrorKind::InputOutput.
std::string move_aside(const std::string& path, const std::string& aside, const std::string& name, FileCalls& calls);
std::string copy_aside(const std::string& path, const std::string& aside, const std::string& name, FileCalls& calls);

}  // namespace harmonics::engine::spool
