#include "engine/cli/run/row_file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>

#include <fmt/core.h>

#include <harmonics/error.hpp>

namespace harmonics::engine::cli {

RowFile::RowFile(std::string path, FileCalls& calls) : path_(std::move(path)), calls_(calls) {
  file_ = calls_.open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) fail(errno);
  const long long size = calls_.size(file_);
  if (size >= 0) {
    whole_ = static_cast<size_t>(size);
    return;
  }
  const int reason = errno;
  calls_.close(file_);
  fail(reason);
}

RowFile::~RowFile() { calls_.close(file_); }

void RowFile::append(std::string_view row) {
  if (torn_ && calls_.truncate(file_, whole_) != 0) fail(errno);
  torn_ = false;
  for (size_t done = 0; done < row.size();) {
    const long wrote = calls_.write(file_, row.data() + done, row.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      const int reason = wrote < 0 ? errno : ENOSPC;
      torn_ = done > 0 && calls_.truncate(file_, whole_) != 0;
      fail(reason);
    }
    done += static_cast<size_t>(wrote);
  }
  whole_ += row.size();
}

void RowFile::fail(int reason) const {
  throw Error(kind_of_failure(reason, ErrorKind::Output),
              fmt::format("cannot write {}: {}", path_, std::strerror(reason)));
}

}  // namespace harmonics::engine::cli
