// Zip archives: members stored or deflated, also beyond 4 GiB (zip64). No encryption, no spanning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/origin.hpp"

namespace harmonics {

struct ZipMember {
  std::string name;
  uint16_t method;  // 0 stored, 8 deflated
  uint16_t flags;
  uint32_t crc;
  uint64_t packed, size;
  uint64_t header;  // offset of its local header
  bool stored() const { return method == 0; }
};

bool looks_like_zip(const uint8_t* data, size_t size);
// Reads the archive's directory, in its order. The sizes are checked when a member is read.
std::vector<ZipMember> read_zip_directory(std::span<const uint8_t> archive, const Origin& file);
// Returns the member's bytes in the archive, stored or deflated as `method` says. Rejects encrypted members, other
// methods, bytes outside the archive, and sizes that deflate cannot reach, so that allocating `size` bytes is safe.
std::span<const uint8_t> zip_member_bytes(std::span<const uint8_t> archive, const ZipMember& member,
                                          const Origin& file);
// Unpacks a deflated member into `to` of member.size bytes.
void inflate_zip_member(std::span<const uint8_t> packed, const ZipMember& member, std::span<uint8_t> to,
                        const Origin& file);
// Compares the checksum of the member's unpacked bytes with the directory's.
void check_zip_member(std::span<const uint8_t> bytes, const ZipMember& member, const Origin& file);

}  // namespace harmonics
