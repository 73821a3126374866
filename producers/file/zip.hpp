// Zip archives as NPZ uses them: members stored or deflated, also beyond 4 GiB (zip64). No encryption, no spanning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "producers/file/bytes.hpp"

namespace harmonics {

struct ZipMember {
  std::string name;
  uint16_t method;  // 0 stored, 8 deflated
  uint16_t flags;
  uint32_t crc;
  uint64_t packed, size;
  uint64_t header;  // offset of its local header
};

bool looks_like_zip(const uint8_t* data, size_t size);
// Reads the archive's directory, in order. Its sizes are checked when a member is read.
std::vector<ZipMember> read_zip_directory(const FileBytesPtr& archive);
// Returns a member's bytes under the name "archive#member": a part of the mapped archive if stored, else unpacked.
// Size and checksum must match the directory.
FileBytesPtr read_zip_member(const FileBytesPtr& archive, const ZipMember& member);

}  // namespace harmonics
