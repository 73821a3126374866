// Decompresses texts of gzip and zstd.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/file.hpp"

namespace harmonics::engine {

// Returns whether the bytes begin like a gzip or zstd file.
bool is_packed(std::string_view bytes);
// Returns the name without .gz or .zst.
std::string name_unpacked(const std::string& name);
// Decompresses and calls `take` with each piece, which is valid during the call. Throws ErrorKind::Stream with `name`
// and the offset for malformed and truncated files, and for more bytes than 4,096 times the compressed size and 64 MiB.
void unpack(std::string_view packed, const std::string& name, const std::function<void(std::string_view)>& take);
// Decompresses into an unlinked file in TMPDIR, or in /var/tmp, and maps it. Throws the errors of unpack(), and
// ErrorKind::InputOutput if the file cannot be written.
std::shared_ptr<const MappedFile> unpacked_file(std::string_view packed, const std::string& name);

}  // namespace harmonics::engine
