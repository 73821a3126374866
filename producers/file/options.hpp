// The options of file: addresses, typed, and which of them each format knows.
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

  std::string format;                    // "": told by content and ending
  std::optional<std::string> selection;  // behind '#'
  std::string part;
  uint64_t memory = 0;  // the most that may be taken; 0: as the files allow
  CsvOptions table;
  TextOptions text;
  TokenOptions tokens;
  RawOptions raw;
  ImageOptions images;
  std::vector<std::string> given;  // names of all options that were written, '#' among them

  bool has(const std::string& name) const;
};

// The schema, for registration: those of files, and those of pipes and files that are followed.
std::vector<Argument> file_options();
std::vector<Argument> options_of_files();

}  // namespace harmonics
