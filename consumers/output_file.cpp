#include "consumers/output_file.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace harmonics {

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (path.empty()) throw Error(ErrorKind::Usage, "file: names no file; write file:PATH");
  struct stat st {};
  if (stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode)) fail(S_ISDIR(st.st_mode) ? EISDIR : EEXIST);
  constexpr int kMostNames = 1 << 16;
  int fd = -1;
  for (int number = 0; number < kMostNames; ++number) {
    temporary_ = path + "." + std::to_string(getpid()) + "-" + std::to_string(number) + ".tmp";
    fd = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) break;
  }
  if (fd < 0) {
    temporary_.clear();
    fail(errno);
  }
  file_ = fdopen(fd, "wb");
}

OutputFile::~OutputFile() {
  if (file_) std::fclose(file_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::fail(int error) const {
  throw Error(kind_of_failure(error, ErrorKind::Output), "cannot write '" + path_ + "': " + std::strerror(error));
}

void OutputFile::write(std::string_view bytes) {
  if (!file_) throw Error(ErrorKind::Output, "cannot write '" + path_ + "': it is finished");
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) fail(errno);
}

void OutputFile::rewrite_start(std::string_view bytes) {
  if (file_ && std::fseek(file_, 0, SEEK_SET) != 0) fail(errno);
  write(bytes);
}

void OutputFile::finish() {
  if (!file_) return;
  if (std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) fail(errno);
  const bool closed = std::fclose(file_) == 0;
  file_ = nullptr;
  if (!closed || std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  temporary_.clear();
}

}  // namespace harmonics
