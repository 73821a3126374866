// A file that rows are added to while others read it.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/file.hpp"

namespace harmonics::cli {

class RowFile {
 public:
  // Behind what it holds; it is made when it is not there. Throws as append() does.
  explicit RowFile(std::string path, FileCalls& calls = FileCalls::system());
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;
  ~RowFile();
  // All of a row or nothing: throws ErrorKind::Output (InputOutput for a device that fails), and then what was written
  // of it is taken back, now or, where that fails too, before the next row.
  void append(std::string_view row);
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(int reason) const;

  std::string path_;
  FileCalls& calls_;
  int file_ = -1;
  size_t whole_ = 0;   // bytes of whole rows
  bool torn_ = false;  // more than those are in it
};

}  // namespace harmonics::cli
