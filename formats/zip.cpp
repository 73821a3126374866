#include "formats/zip.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

namespace harmonics {
namespace {

constexpr size_t end_size = 22, end64_size = 56, locator_size = 20, entry_size = 46, local_size = 30;
constexpr size_t most_comment = 0xFFFF;
constexpr size_t most_deflated = 1032;  // the maximum compression ratio of deflate

uint64_t little(const uint8_t* p, size_t width) {
  uint64_t v = 0;
  for (size_t i = width; i-- > 0;) v = v << 8 | p[i];
  return v;
}

class Directory {
 public:
  Directory(std::span<const uint8_t> archive, const Origin& file) : archive_(archive), file_(file) {
    find_end();
    if (entries_ == 0xFFFF || offset_ == 0xFFFFFFFF || bytes_ == 0xFFFFFFFF) read_end64();
    if (offset_ > end_ || bytes_ > end_ - offset_)
      damaged("its directory of " + std::to_string(bytes_) + " bytes at byte " + std::to_string(offset_) +
              " is not before its end record at byte " + std::to_string(end_));
  }

  std::vector<ZipMember> members() const {
    std::vector<ZipMember> all;
    size_t at = offset_;
    for (uint64_t i = 0; i < entries_; ++i) {
      if (offset_ + bytes_ - at < entry_size || little(archive_.data() + at, 4) != 0x02014B50)
        damaged("entry " + std::to_string(i) + " of " + std::to_string(entries_) +
                " of its directory is not there at byte " + std::to_string(at));
      all.push_back(member(at));
    }
    return all;
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    refuse(file_, "is a damaged zip archive: " + what, "get the file again");
  }

  // Finds the end record, which is followed only by a comment of at most 65535 bytes.
  void find_end() {
    if (archive_.size() >= end_size)
      for (size_t at = archive_.size() - end_size, i = 0; i <= most_comment; --at, ++i) {
        const uint8_t* p = archive_.data() + at;
        if (little(p, 4) == 0x06054B50 && little(p + 20, 2) == i) {
          end_ = at;
          entries_ = little(p + 10, 2);
          bytes_ = little(p + 12, 4);
          offset_ = little(p + 16, 4);
          return;
        }
        if (at == 0) break;
      }
    damaged("it has no end record, as when a download broke off");
  }

  void read_end64() {
    if (end_ < locator_size) return;
    const uint8_t* locator = archive_.data() + end_ - locator_size;
    if (little(locator, 4) != 0x07064B50) return;
    const uint64_t at = little(locator + 8, 8);
    if (end_ < end64_size || at > end_ - end64_size || little(archive_.data() + at, 4) != 0x06064B50)
      damaged("its zip64 end record is not at byte " + std::to_string(at));
    const uint8_t* p = archive_.data() + at;
    entries_ = little(p + 32, 8);
    bytes_ = little(p + 40, 8);
    offset_ = little(p + 48, 8);
    end_ = at;
  }

  ZipMember member(size_t& at) const {
    const uint8_t* p = archive_.data() + at;
    const size_t name = little(p + 28, 2), extra = little(p + 30, 2), comment = little(p + 32, 2);
    if (offset_ + bytes_ - at - entry_size < name + extra + comment)
      damaged("its directory breaks off at byte " + std::to_string(at));
    ZipMember m{std::string(reinterpret_cast<const char*>(p) + entry_size, name),
                static_cast<uint16_t>(little(p + 10, 2)),
                static_cast<uint16_t>(little(p + 8, 2)),
                static_cast<uint32_t>(little(p + 16, 4)),
                little(p + 20, 4),
                little(p + 24, 4),
                little(p + 42, 4)};
    read_extra(p + entry_size + name, extra, m);
    at += entry_size + name + extra + comment;
    return m;
  }

  // Extra field 1 holds the numbers beyond 32 bits, in this order, and only those that are all ones in the record.
  static void read_extra(const uint8_t* p, size_t left, ZipMember& m) {
    while (left >= 4) {
      const size_t id = little(p, 2), size = little(p + 2, 2);
      if (size > left - 4) return;
      if (id == 1) {
        size_t at = 0;
        for (uint64_t* value : {&m.size, &m.packed, &m.header})
          if (*value == 0xFFFFFFFF && size - at >= 8) {
            *value = little(p + 4 + at, 8);
            at += 8;
          }
      }
      p += 4 + size;
      left -= 4 + size;
    }
  }

  std::span<const uint8_t> archive_;
  const Origin& file_;
  uint64_t entries_ = 0, bytes_ = 0, offset_ = 0;
  size_t end_ = 0;
};

Origin member_origin(const Origin& file, const ZipMember& m) { return {file.name + "#" + m.name, file.kind}; }

[[noreturn]] void damaged_member(const Origin& file, const ZipMember& m, const std::string& what) {
  refuse(member_origin(file, m), "is damaged: " + what, "get the file again");
}

}  // namespace

bool looks_like_zip(const uint8_t* data, size_t size) { return size >= 4 && std::memcmp(data, "PK\x03\x04", 4) == 0; }

std::vector<ZipMember> read_zip_directory(std::span<const uint8_t> archive, const Origin& file) {
  return Directory(archive, file).members();
}

std::span<const uint8_t> zip_member_bytes(std::span<const uint8_t> archive, const ZipMember& m, const Origin& file) {
  if (m.flags & 1) refuse(member_origin(file, m), "is encrypted", "save it without a password");
  if (m.method != 0 && m.method != 8)
    refuse(member_origin(file, m),
           "is compressed by zip's method " + std::to_string(m.method) + "; stored (0) and deflated (8) can be read",
           "save it with numpy.savez or savez_compressed");
  const size_t size = archive.size();
  if (size < local_size || m.header > size - local_size || little(archive.data() + m.header, 4) != 0x04034B50)
    damaged_member(file, m, "its local header is not at byte " + std::to_string(m.header));
  const uint8_t* local = archive.data() + m.header;
  const size_t skipped = local_size + little(local + 26, 2) + little(local + 28, 2);
  if (skipped > size - m.header || m.packed > size - m.header - skipped)
    damaged_member(file, m,
                   std::to_string(m.packed) + " bytes are promised from byte " + std::to_string(m.header + skipped) +
                       " on, the archive has " + std::to_string(size));
  if (m.stored() && m.packed != m.size)
    damaged_member(
        file, m, "it is stored, yet " + std::to_string(m.packed) + " bytes are declared as " + std::to_string(m.size));
  if (!m.stored() && m.size / most_deflated > m.packed)
    damaged_member(file, m,
                   "its directory promises " + std::to_string(m.size) + " bytes, more than " +
                       std::to_string(m.packed) + " compressed bytes can hold");
  return archive.subspan(m.header + skipped, m.packed);
}

void inflate_zip_member(std::span<const uint8_t> packed, const ZipMember& m, std::span<uint8_t> to,
                        const Origin& file) {
  z_stream z{};
  if (inflateInit2(&z, -15) != Z_OK)
    throw Error(ErrorKind::Memory, "zlib has no memory to decompress '" + m.name + "'");
  size_t fed = 0, got = 0;
  int status = Z_OK;
  while (status == Z_OK) {
    const size_t in = std::min<size_t>(packed.size() - fed, 1u << 30),
                 room = std::min<size_t>(to.size() - got, 1u << 30);
    z.next_in = const_cast<Bytef*>(packed.data() + fed);
    z.avail_in = static_cast<uInt>(in);
    z.next_out = to.data() + got;
    z.avail_out = static_cast<uInt>(room);
    status = inflate(&z, Z_NO_FLUSH);
    fed += in - z.avail_in;
    got += room - z.avail_out;
  }
  inflateEnd(&z);
  if (status != Z_STREAM_END || got != to.size())
    damaged_member(file, m,
                   "its deflate stream " + std::string(status == Z_STREAM_END ? "ends" : "is not sound") + " after " +
                       std::to_string(got) + " of " + std::to_string(m.size) + " bytes");
}

void check_zip_member(std::span<const uint8_t> bytes, const ZipMember& m, const Origin& file) {
  if (crc32_z(0, bytes.data(), bytes.size()) != m.crc) damaged_member(file, m, "its checksum does not fit");
}

}  // namespace harmonics
