// What can be done about a damaged segment: finding what is whole behind the damage, and keeping the file for people.
#pragma once

#include <optional>
#include <string>

#include "engine/base/file.hpp"
#include "wire/frame.hpp"

namespace harmonics::spool {

// Where a damaged frame stands in a file, and what is known of those before it.
struct Break {
  uint64_t at = 0, until = 0;  // bytes: of the damaged frame; of the part of the file that counts
  std::string stream, source;  // "": no frame was read before it
  uint64_t next = 0;           // the least sample that may follow
};

// Where the next whole frame of the stream begins behind a damaged one; none: nothing is whole there. A length that
// fits is trusted, so that nothing within a sample is taken for a frame; else the file is searched, its next 128 MiB at
// most.
std::optional<uint64_t> whole_frame_behind(const std::string& path, const Break& damaged, FileCalls& calls);

// Under this name in the folder `aside`, which is made where needed; a number is added where the name is taken. On the
// disk, with its name, when these return the new path. Throw ErrorKind::InputOutput.
std::string move_aside(const std::string& path, const std::string& aside, const std::string& name, FileCalls& calls);
std::string copy_aside(const std::string& path, const std::string& aside, const std::string& name, FileCalls& calls);

}  // namespace harmonics::spool
