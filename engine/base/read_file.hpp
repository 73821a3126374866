// A whole file into memory, never more of it than allowed.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <sys/stat.h>

namespace harmonics {

// Throws ErrorKind::NoInput when the file cannot be opened or read or is no plain stream of bytes, when it holds more
// than `limit` bytes, and when it is a pipe that nothing opens for writing. `expect` sees what was opened before it is
// read, and may throw.
std::string read_file(const std::string& path, size_t limit,
                      const std::function<void(const struct stat&)>& expect = {});

}  // namespace harmonics
