// Whole files of binary formats for structure-aware mutators: well-formed except for false lengths, offsets and
// shapes.
#pragma once

#include <zlib.h>

#include "tests/fuzz/structured.hpp"

namespace harmonics::engine::testing {

inline void append_bytes(std::string& to, uint64_t value, int bytes, bool big_endian = false) {
  for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * (big_endian ? bytes - 1 - i : i)));
}

inline std::string json_numbers(Choices& c, uint64_t most) {
  std::string text = "[";
  for (uint64_t i = 0, n = c.below(most); i < n; ++i)
    text += (i ? "," : "") + (c.one_in(3) ? c.number() : std::to_string(c.length()));
  return text + "]";
}

// Returns the header's JSON. Offsets match the shape, overlap, or are false.
inline std::string safetensors_header(Choices& c) {
  static const std::vector<std::string> types = {"F32", "F16", "BF16", "F64",     "U8",
                                                 "I8",  "I64", "BOOL", "F8_E4M3", "X"};
  static const std::vector<std::string> names = {"a", "b", "w", "__metadata__", "\\u0000", "a\\ud800"};
  std::string text = "{";
  uint64_t at = 0;
  for (uint64_t i = 0, n = c.below(5); i < n; ++i) {
    const uint64_t rows = c.below(5), end = at + rows * 4;
    text += i ? "," : "";
    text += "\"" + c.of(names) + "\":";
    if (c.one_in(8)) {
      text += "{\"format\":\"pt\",\"k\":\"v\"}";
      continue;
    }
    text += "{\"dtype\":\"" + c.of(types) +
            "\",\"shape\":" + (c.one_in(2) ? "[" + std::to_string(rows) + "]" : json_numbers(c, 9)) +
            ",\"data_offsets\":" +
            (c.one_in(2) ? "[" + std::to_string(at) + "," + std::to_string(end) + "]" : json_numbers(c, 4)) + "}";
    at = end;
  }
  return text + "}" + std::string(c.below(3), ' ');
}

inline std::string safetensors_file(Choices& c, size_t room) {
  const std::string header = safetensors_header(c);
  std::string file;
  append_bytes(file, c.one_in(6) ? c.length() : header.size(), 8);
  return file + header + std::string(c.below(std::min<size_t>(room, 100)), '\1');
}

inline std::string idx_file(Choices& c, size_t room) {
  static const std::vector<int> types = {0x08, 0x09, 0x0B, 0x0C, 0x0D, 0x0E, 0x00};
  const uint64_t axes = c.below(9);
  std::string file(2, '\0');
  file += static_cast<char>(c.of(types));
  file += static_cast<char>(c.one_in(6) ? c.below(256) : axes);
  for (uint64_t i = 0; i < axes; ++i) append_bytes(file, c.one_in(2) ? c.length() : c.below(9), 4, true);
  return file + std::string(c.below(std::min<size_t>(room, 600)), '\1');
}

inline std::string npy_file(Choices& c, size_t room) {
  static const std::vector<std::string> types = {"|b1", "|u1", "|i1", "<i2", ">u2", "<i4", "<u4",
                                                 ">i8", "<u8", "<f2", "<f4", ">f8", "|O",  "<c8"};
  std::string shape = "(";
  for (uint64_t i = 0, axes = c.below(10); i < axes; ++i)
    shape += std::to_string(c.length()) + (i + 1 < axes || axes == 1 ? ", " : "");
  const std::string text = "{'descr': '" + c.of(types) + "', 'fortran_order': " + (c.one_in(2) ? "True" : "False") +
                           ", 'shape': " + shape + "), }\n";
  const uint64_t promised = c.one_in(4) ? c.length() : text.size();
  std::string file =
      std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(promised) + static_cast<char>(promised >> 8) + text;
  file.append(c.below(std::min<size_t>(room, 600)), '\1');
  return file;
}

// Returns a zip archive of stored members, each written by `content`. Some sizes, offsets and counts are false;
// checksums are correct.
template <typename Content>
std::string zip_file(Choices& c, size_t room, Content content) {
  static const std::vector<std::string> names = {"a.npy", "b.npy", "../a.npy", "", "a.txt"};
  std::string file, directory;
  const uint64_t members = c.below(4);
  const auto lying = [&c](uint64_t value) { return c.one_in(8) ? c.length() : value; };
  for (uint64_t i = 0; i < members; ++i) {
    const std::string name = c.of(names), data = content(c, room / 4);
    const uint64_t at = file.size(), checksum = crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size());
    const auto entry = [&](std::string& to, uint64_t signature, bool central) {
      append_bytes(to, signature, 4);
      append_bytes(to, 20, central ? 4 : 2);  // versions
      append_bytes(to, 0, 2);                 // flags
      append_bytes(to, lying(0), 2);          // method: stored
      append_bytes(to, 0, 4);                 // time and date
      append_bytes(to, lying(checksum), 4);
      append_bytes(to, lying(data.size()), 4);
      append_bytes(to, lying(data.size()), 4);
      append_bytes(to, lying(name.size()), 2);
      append_bytes(to, lying(0), 2);  // extra field
      if (central) {
        append_bytes(to, lying(0), 2);  // comment
        append_bytes(to, 0, 8);         // disk, attributes
        append_bytes(to, lying(at), 4);
      }
      to += name;
    };
    entry(file, 0x04034b50, false);
    file += data;
    entry(directory, 0x02014b50, true);
  }
  const uint64_t begin = file.size();
  file += directory;
  append_bytes(file, 0x06054b50, 4);
  append_bytes(file, 0, 4);
  append_bytes(file, lying(members), 2);
  append_bytes(file, lying(members), 2);
  append_bytes(file, lying(directory.size()), 4);
  append_bytes(file, lying(begin), 4);
  append_bytes(file, lying(0), 2);
  return file;
}

}  // namespace harmonics::engine::testing
