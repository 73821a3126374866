// A file that is appended row by row while others read it.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/file.hpp"

namespace harmonics::engine::cli {

class RowFile {
 public:
  // Appends to the existing content, and creates the file if it is missing. Throws as append() does.
  explicit RowFile(std::string path, FileCalls& calls = FileCalls::system());
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;
  ~RowFile();
  // Appends a whole row or nothing. Throws ErrorKind::Output (InputOutput for a failing device). A partly written row
  // is removed at once or, if that fails too, before the next row.
  void append(std::string_view row);
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(int reason) const;

  std::string path_;
  FileCalls& calls_;
  int file_ = -1;
  size_t whole_ = 0;   // bytes of complete rows
  bool torn_ = false;  // a partial row follows them
};

}  // namespace harmonics::engine::cli
