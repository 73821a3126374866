// A file to which rows are appended while other programs read it.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/file.hpp"

namespace harmonics::engine::cli {

class RowFile {
 public:
  // Opens the file, or creates it, to append to its content. Throws the errors of append().
  explicit RowFile(std::string path, FileCalls& calls = FileCalls::system());
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;
  ~RowFile();
  // Appends a whole row or nothing. Throws ErrorKind::Output, or InputOutput for a failing device. A partial row is
  // removed immediately or, if that fails too, before the next row.
  void append(std::string_view row);
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(int reason) const;

  std::string path_;
  FileCalls& calls_;
  int file_ = -1;
  size_t whole_ = 0;   // bytes of complete rows
  bool torn_ = false;  // a partial row follows the complete ones
};

}  // namespace harmonics::engine::cli
