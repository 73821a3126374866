// A whole file into memory, never more of it than allowed.
#pragma once

#include <cstddef>
#include <string>

namespace harmonics {

// Throws ErrorKind::NoInput when the file cannot be opened or read or is no plain stream of bytes, and when it holds
// more than `limit` bytes.
std::string read_file(const std::string& path, size_t limit);

}  // namespace harmonics
