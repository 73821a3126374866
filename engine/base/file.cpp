#include "engine/base/file.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <harmonics/error.hpp>

namespace harmonics {

int FileCalls::open(const char* path, int flags, unsigned mode) { return ::open(path, flags, mode); }
long FileCalls::write(int file, const void* data, size_t bytes) { return ::write(file, data, bytes); }
int FileCalls::sync(int file) { return ::fsync(file); }
int FileCalls::close(int file) { return ::close(file); }
int FileCalls::rename(const char* from, const char* to) { return std::rename(from, to); }
int FileCalls::remove(const char* path) { return ::unlink(path); }

FileCalls& FileCalls::system() {
  static FileCalls calls;
  return calls;
}

namespace {

// One replacement under way: what is not finished is removed.
class Replacement {
 public:
  Replacement(const std::string& path, FileCalls& calls) : calls_(calls), given_(path), path_(path) {
    struct stat former {};
    if (::stat(path.c_str(), &former) == 0) {
      if (!S_ISREG(former.st_mode)) fail("it is there and no plain file");
      mode_ = static_cast<int>(former.st_mode & 07777);
      follow_link();
    }
    const size_t slash = path_.rfind('/');
    directory_ = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    static std::atomic<unsigned> number{0};
    aside_ = (slash == std::string::npos ? "" : directory_) + ".harmonics-" + std::to_string(::getpid()) + "-" +
             std::to_string(number++) + ".tmp";
    file_ = calls_.open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                        mode_ < 0 ? 0666u : static_cast<unsigned>(mode_));
    if (file_ < 0) fail(std::strerror(errno));
    exists_ = true;
    // Without the mask of this process. Where it cannot be done the file keeps the mask's permissions, which are fewer.
    if (mode_ >= 0) (void)::fchmod(file_, static_cast<mode_t>(mode_));
  }

  ~Replacement() {
    if (file_ >= 0) calls_.close(file_);
    if (exists_) calls_.remove(aside_.c_str());
  }

  void append(std::string_view bytes) {
    while (!bytes.empty()) {
      const long wrote = calls_.write(file_, bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0)
        fail(std::string(wrote < 0 ? std::strerror(errno) : "the system takes no more") + " after " +
             std::to_string(written_) + " bytes");
      bytes.remove_prefix(static_cast<size_t>(wrote));
      written_ += static_cast<size_t>(wrote);
    }
  }

  void finish() {
    if (calls_.sync(file_) != 0) fail(std::strerror(errno));
    const int closed = calls_.close(file_);
    file_ = -1;
    if (closed != 0) fail(std::strerror(errno));
    if (calls_.rename(aside_.c_str(), path_.c_str()) != 0) fail(std::strerror(errno));
    exists_ = false;
    sync_directory();
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::Output, "cannot write '" + given_ + "': " + why);
  }

  void follow_link() {
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path_.c_str(), nullptr), &std::free);
    if (real) path_ = real.get();
  }

  // The new name survives a power cut only once its directory is on the disk. Some file systems know no such call.
  void sync_directory() {
    const int directory = calls_.open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    const bool synced = directory >= 0 && (calls_.sync(directory) == 0 || errno == EINVAL);
    const int reason = errno;
    if (directory >= 0) calls_.close(directory);
    if (!synced)
      throw Error(ErrorKind::Output, "'" + given_ + "' was written, but its directory cannot be synced: " +
                                         std::strerror(reason) + "; a power cut may still bring back the former file");
  }

  FileCalls& calls_;
  std::string given_, path_, directory_, aside_;
  int mode_ = -1;  // permissions of the former file
  int file_ = -1;
  bool exists_ = false;  // the file aside
  size_t written_ = 0;
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(ErrorKind::NoInput, "cannot read '" + path + "': " + why);
}

}  // namespace

void write_file_atomically(const std::string& path, std::span<const std::string_view> pieces, FileCalls& calls) {
  Replacement replacement(path, calls);
  for (const std::string_view piece : pieces) replacement.append(piece);
  replacement.finish();
}

void write_file_atomically(const std::string& path, std::string_view bytes, FileCalls& calls) {
  write_file_atomically(path, std::span(&bytes, 1), calls);
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  // Without O_NONBLOCK opening a pipe would wait for somebody to write.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) refuse(path, std::strerror(errno));
  struct stat state {};
  const bool plain = ::fstat(file, &state) == 0 && S_ISREG(state.st_mode);
  const auto bytes = plain ? static_cast<size_t>(state.st_size) : 0;
  void* data = plain && bytes ? ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0) : nullptr;
  const int reason = errno;
  ::close(file);
  if (!plain) refuse(path, "it is no plain file");
  if (data == MAP_FAILED) refuse(path, std::strerror(reason));
  return std::shared_ptr<const MappedFile>(new MappedFile(data, bytes));
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(data_, bytes_);
}

}  // namespace harmonics
