// Texts that are packed by gzip or zstd.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/file.hpp"

namespace harmonics::engine {

// By the first bytes.
bool is_packed(std::string_view bytes);
// The name without .gz or .zst.
std::string name_unpacked(const std::string& name);
// Calls `take` with the unpacked bytes piece by piece; each is valid during the call. Throws ErrorKind::Stream with
// `name` and the place for damaged and truncated files, and for more than 4,096 times the packed bytes, or 64 MiB if
// that is more.
void unpack(std::string_view packed, const std::string& name, const std::function<void(std::string_view)>& take);
// The same in an unnamed file in TMPDIR, or /var/tmp. Throws ErrorKind::InputOutput if it cannot be written.
std::shared_ptr<const MappedFile> unpacked_file(std::string_view packed, const std::string& name);

}  // namespace harmonics::engine
