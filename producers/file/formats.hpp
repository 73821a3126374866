// Detects a file's format by its content, then by its extension; one row per format.
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
  std::vector<const char*> options;                  // supported options, besides format, memory, learned
  bool (*begins)(const uint8_t* data, size_t size);  // null: not recognizable by content
  std::shared_ptr<Producer> (*open)(const FileBytesPtr& file, const FileOptions& options);
  // Adds one symbol to the options, if the format's symbols come from the file.
  void (*add_symbol)(FileOptions& options, const std::string& symbol);
};

const std::vector<FileFormat>& file_formats();
// "npy, npz, ... or raw"
std::string all_formats();
// Detects the format of an unpacked file. Rejects a file that neither content nor extension identifies, with a remedy.
const FileFormat& format_of(const FileBytes& file, const FileOptions& options);
// Detects the format by extension only, ignoring .gz and .zst; null: unknown.
const FileFormat* format_of_name(const std::string& name);
// Rejects options that the format does not support.
void check_options(const std::string& name, const FileFormat& format, const FileOptions& options);

}  // namespace harmonics
