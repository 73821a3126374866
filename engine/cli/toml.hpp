// The part of TOML 1.0 (https://toml.io/en/v1.0.0) that settings need: tables of one name, keys, texts in one line,
// numbers, true and false, and lists of those. What else TOML has is refused with its line, not passed over.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace harmonics::cli {

struct TomlValue {
  enum class Kind { text, number, flag };
  Kind kind = Kind::text;
  std::string text;  // as it would be typed on the command line: without quotes, numbers in decimal, "true" or "false"
};

struct TomlEntry {
  std::string key;
  std::vector<TomlValue> values;
  bool list = false;  // else one value
  size_t line = 0;
};

struct TomlTable {
  std::string name;  // "": what stands before the first table
  size_t line = 0;
  std::vector<TomlEntry> entries;  // in the order of the file, every key once
};

// The tables in the order of the file, the unnamed one first. "run.batch = 3" is an entry of the table "run". Throws
// ErrorKind::Syntax with `path` and the line. Time and memory grow with the text alone.
std::vector<TomlTable> parse_toml(const std::string& path, const std::string& text);

}  // namespace harmonics::cli
