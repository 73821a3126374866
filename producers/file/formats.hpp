// What a file holds, told by its content, then by its name's ending; one row a format.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

#include "producers/file/bytes.hpp"
#include "producers/file/options.hpp"

namespace harmonics {

struct FileFormat {
  const char* name;
  std::vector<const char*> endings;
  std::vector<const char*> options;                  // that mean something for it, beside format
  bool (*begins)(const uint8_t* data, size_t size);  // null: content does not show it
  std::shared_ptr<Producer> (*open)(const FileBytesPtr& file, const FileOptions& options);
  // Where symbols come from the file: has the options name one more of them.
  void (*add_symbol)(FileOptions& options, const std::string& symbol);
};

const std::vector<FileFormat>& file_formats();
// "npy, npz, ... or raw"
std::string all_formats();
// Of an unpacked file. Refuses one that shows neither, saying what to add.
const FileFormat& format_of(const FileBytes& file, const FileOptions& options);
// By the ending alone, without .gz and .zst; null: none.
const FileFormat* format_of_name(const std::string& name);
// An option that means nothing for this format is a mistake, not decoration.
void check_options(const std::string& name, const FileFormat& format, const FileOptions& options);

}  // namespace harmonics
