// A file that appears under its name only once it is complete.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include <harmonics/error.hpp>

namespace harmonics {

// Writes under a temporary name in the same folder. finish() renames the file; the destructor removes an unfinished
// one.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::string_view bytes);
  // Overwrites the start of the file.
  void rewrite_start(std::string_view bytes);
  void finish();

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
};

}  // namespace harmonics
