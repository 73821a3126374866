// A file that appears under its name only when it is complete.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include <harmonics/error.hpp>

namespace harmonics {

// Written under a temporary name in the same folder; finish() gives it its own. Abandoned, it leaves nothing behind.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::string_view bytes);
  // Over what stands at the beginning.
  void rewrite_start(std::string_view bytes);
  void finish();

 private:
  [[noreturn]] void fail(int error) const;

  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
};

}  // namespace harmonics
