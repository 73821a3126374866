// Parses the subset of TOML 1.0 (https://toml.io/en/v1.0.0) that settings need: tables with simple names, keys,
// one-line strings, numbers, true and false, and lists of these. Other TOML throws an error with its line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace harmonics::engine::cli {

struct TomlValue {
  enum class Kind { text, number, flag };
  Kind kind = Kind::text;
  std::string text;  // in the form of the command line: without quotes, numbers in decimal, "true" or "false"
};

struct TomlEntry {
  std::string key;
  std::vector<TomlValue> values;
  bool list = false;  // false: one value
  size_t line = 0;
};

struct TomlTable {
  std::string name;  // "": entries before the first table
  size_t line = 0;
  std::vector<TomlEntry> entries;  // in the order of the file; keys are unique
};

// Returns the tables in the order of the file, the unnamed one first. "run.batch = 3" is an entry of the table "run".
// Throws ErrorKind::Syntax with `path` and the line. Time and memory are linear in the size of the text.
std::vector<TomlTable> parse_toml(const std::string& path, const std::string& text);

}  // namespace harmonics::engine::cli
