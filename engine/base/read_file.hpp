// Reads a whole file into memory, up to a limit.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <sys/stat.h>

namespace harmonics::engine {

// Throws ErrorKind::NoInput if the file cannot be opened or read, is not a stream of bytes, has more than `limit`
// bytes, or is a pipe without a writer. `expect` is called with the opened file's state before it is read, and may
// throw.
std::string read_file(const std::string& path, size_t limit,
                      const std::function<void(const struct stat&)>& expect = {});

}  // namespace harmonics::engine
