// The typed options of file: addresses, and which of them each format supports.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <harmonics/function.hpp>

#include "producers/file/csv.hpp"
#include "producers/file/images.hpp"
#include "producers/file/raw.hpp"
#include "producers/file/text.hpp"
#include "producers/file/tokens.hpp"

namespace harmonics {

struct FileOptions {
  FileOptions() = default;
  explicit FileOptions(const Arguments& given);

  std::string format;                    // "": detected by content and extension
  std::optional<std::string> selection;  // after '#'
  std::string part;
  uint64_t memory = 0;  // limit in bytes; 0: depends on the files
  CsvOptions table;
  TextOptions text;
  TokenOptions tokens;
  RawOptions raw;
  ImageOptions images;
  std::vector<std::string> given;  // names of all given options, including '#'

  bool has(const std::string& name) const;
};

// Returns the option schemas for registration: of files, and of pipes and followed files.
std::vector<Argument> file_options();
std::vector<Argument> options_of_files();

}  // namespace harmonics
