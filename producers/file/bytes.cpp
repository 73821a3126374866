#include "producers/file/bytes.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace harmonics {
namespace {

uint8_t* map_anonymous(const std::string& name, size_t size) {
  void* p = mmap(nullptr, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    refuse_file(name, "needs " + std::to_string(size) + " bytes of memory, which the system refuses");
  return static_cast<uint8_t*>(p);
}

[[noreturn]] void cannot_read(const std::string& path, const std::string& why, int fd) {
  ::close(fd);
  throw Error(ErrorKind::NoInput, "cannot read '" + path + "': " + why);
}
[[noreturn]] void cannot_read(const std::string& path, int fd = -1) {
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  throw Error(kind_of_failure(reason, ErrorKind::NoInput), "cannot read '" + path + "': " + std::strerror(reason));
}

}  // namespace

void refuse_file(const std::string& name, const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::Stream, "'" + name + "' " + what + (remedy.empty() ? "" : "; " + remedy));
}

std::shared_ptr<const FileBytes> FileBytes::open(const std::string& path) {
  if (path.empty()) throw Error(ErrorKind::Usage, "file: names no file; write file:PATH");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) cannot_read(path);
  struct stat st {};
  if (fstat(fd, &st) != 0) cannot_read(path, fd);
  if (S_ISDIR(st.st_mode)) cannot_read(path, "it is a directory", fd);
  if (!S_ISREG(st.st_mode)) cannot_read(path, "it is not a regular file", fd);
  if (st.st_size == 0) {
    ::close(fd);
    refuse_file(path, "is empty");
  }
  const auto size = static_cast<size_t>(st.st_size);
  void* p = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (p == MAP_FAILED) cannot_read(path, fd);
  ::close(fd);
  const auto bytes = std::shared_ptr<FileBytes>(new FileBytes(path, static_cast<uint8_t*>(p), size));
  bytes->mapped_ = true;
  bytes->device_ = st.st_dev;
  bytes->inode_ = st.st_ino;
  return bytes;
}

std::shared_ptr<const FileBytes> FileBytes::piece(const std::shared_ptr<const FileBytes>& whole, std::string name,
                                                  size_t offset, size_t size) {
  if (offset > whole->size() || size > whole->size() - offset)
    throw Error(ErrorKind::Internal, "a piece of '" + whole->name() + "' lies outside of it");
  const auto bytes = std::shared_ptr<FileBytes>(new FileBytes(std::move(name), whole->data_ + offset, size));
  bytes->whole_ = whole;
  return bytes;
}

std::shared_ptr<const FileBytes> FileBytes::copy(std::string name, const void* data, size_t size) {
  const auto bytes = reserve(std::move(name), size);
  if (size) std::memcpy(bytes->writable(), data, size);
  return bytes;
}

std::shared_ptr<FileBytes> FileBytes::reserve(std::string name, size_t size) {
  uint8_t* data = map_anonymous(name, size);
  return std::shared_ptr<FileBytes>(new FileBytes(std::move(name), data, size));
}

FileBytes::~FileBytes() {
  if (!whole_) munmap(data_, size_ ? size_ : 1);
}

void FileBytes::check() const {
  if (whole_) return whole_->check();
  if (!mapped_) return;
  struct stat st {};
  // Another file under the old name leaves the mapped one as it was.
  const bool same = stat(name_.c_str(), &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
  if (same && static_cast<size_t>(st.st_size) < size_)
    refuse_file(name_,
                "became shorter while it was read: it had " + std::to_string(size_) + " bytes and has " +
                    std::to_string(st.st_size),
                "write new data beside the old file and rename it");
}

void FileBytes::shrink(size_t size) {
  if (size >= size_) return;
  void* p = mremap(data_, size_, size ? size : 1, MREMAP_MAYMOVE);
  if (p == MAP_FAILED) refuse_file(name_, "cannot be kept in memory");
  data_ = static_cast<uint8_t*>(p);
  size_ = size;
}

FileBytesPtr unpacked(FileBytesPtr file, size_t limit) {
  if (is_gzip(*file)) return gunzip(file, limit);
  if (is_zstd(*file)) return unzstd(file, limit);
  return file;
}

}  // namespace harmonics
