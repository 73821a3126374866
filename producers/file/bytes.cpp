#include "producers/file/bytes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <harmonics/quantity.hpp>

namespace harmonics {
namespace {

// Smaller contents are read into the heap: the system limits the mappings of a process (vm.max_map_count, usually
// 65530), and a folder may hold more files.
constexpr size_t small_content = size_t{16} << 10;

uint8_t* map_anonymous(const std::string& name, size_t size) {
  void* p = mmap(nullptr, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    refuse_file(name, "needs " + std::to_string(size) + " bytes of memory, which the system refuses");
  return static_cast<uint8_t*>(p);
}

constexpr char kRename[] = "write new data beside the old file and rename it";

uint8_t* heap_bytes(size_t size) { return static_cast<uint8_t*>(::operator new(std::max<size_t>(size, 1))); }

[[noreturn]] void cannot_read(const std::string& path, const std::string& why, int fd) {
  ::close(fd);
  throw Error(ErrorKind::NoInput, "cannot read '" + path + "': " + why);
}
[[noreturn]] void cannot_read(const std::string& path, int fd = -1) {
  const int reason = errno;
  if (fd >= 0) ::close(fd);
  throw Error(kind_of_failure(reason, ErrorKind::NoInput), "cannot read '" + path + "': " + std::strerror(reason));
}

// Reads the whole open file of this size. Returns false if it has become shorter.
bool read_whole(int fd, uint8_t* to, size_t size) {
  while (size > 0) {
    const ssize_t got = ::read(fd, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got == 0 ? (errno = 0, false) : false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

BudgetPtr file_budget(uint64_t most) {
  Budget::Terms terms;
  terms.most = most ? most : first_allowance;
  if (!most) terms.reason = "256 MiB and 64 bytes for each byte of the file";
  terms.fixed = most != 0;
  terms.remedy = most ? "give a larger memory=" : "if this is intended, allow more with memory=, such as memory=8G";
  return std::make_shared<Budget>(std::move(terms));
}

void refuse_file(const std::string& name, const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::Stream, "'" + name + "' " + what + (remedy.empty() ? "" : "; " + remedy));
}

std::shared_ptr<const FileBytes> FileBytes::open(const std::string& path, BudgetPtr budget) {
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
  if (!budget) budget = file_budget();
  budget->allow(size > std::numeric_limits<uint64_t>::max() / allowance_per_byte ? size : size * allowance_per_byte);
  std::shared_ptr<FileBytes> bytes;
  if (size <= small_content) {
    bytes.reset(new FileBytes(path, heap_bytes(size), size, Held::Heap, std::move(budget)));
    if (!read_whole(fd, bytes->data_, size)) {
      if (errno == 0) cannot_read(path, "it became shorter while it was opened", fd);
      cannot_read(path, fd);
    }
  } else {
    FileMapping mapping(fd, size);
    if (!mapping.data() && errno == ENOMEM)
      cannot_read(path,
                  "the system gives this process no more mappings (vm.max_map_count), or no more memory; join small "
                  "files into larger ones, or allow more: sysctl vm.max_map_count=1000000",
                  fd);
    if (!mapping.data()) cannot_read(path, fd);
    auto* const data = static_cast<uint8_t*>(const_cast<void*>(mapping.data()));
    bytes.reset(new FileBytes(path, data, size, Held::File, std::move(budget)));
    bytes->mapping_ = std::move(mapping);
    bytes->lost_ = &bytes->mapping_.lost_flag();
  }
  ::close(fd);
  bytes->is_file_ = true;
  bytes->device_ = st.st_dev;
  bytes->inode_ = st.st_ino;
  return bytes;
}

std::shared_ptr<const FileBytes> FileBytes::piece(const std::shared_ptr<const FileBytes>& whole, std::string name,
                                                  size_t offset, size_t size) {
  if (offset > whole->size() || size > whole->size() - offset)
    throw Error(ErrorKind::Internal, "a piece of '" + whole->name() + "' is outside of it");
  const auto bytes = std::shared_ptr<FileBytes>(
      new FileBytes(std::move(name), whole->data_ + offset, size, Held::Piece, whole->budget_));
  bytes->whole_ = whole->whole_ ? whole->whole_ : whole;
  bytes->lost_ = whole->lost_;
  return bytes;
}

std::shared_ptr<const FileBytes> FileBytes::copy(std::string name, const void* data, size_t size) {
  const BudgetPtr budget = file_budget();
  budget->allow(size > std::numeric_limits<uint64_t>::max() / allowance_per_byte ? size : size * allowance_per_byte);
  const auto bytes = reserve(std::move(name), size, budget);
  if (size) std::memcpy(bytes->writable(), data, size);
  return bytes;
}

std::shared_ptr<FileBytes> FileBytes::reserve(std::string name, size_t size, BudgetPtr budget) {
  uint8_t* data = map_anonymous(name, size);
  return std::shared_ptr<FileBytes>(new FileBytes(std::move(name), data, size, Held::Mapping, std::move(budget)));
}

FileBytes::~FileBytes() {
  if (held_ == Held::Mapping) munmap(data_, size_ ? size_ : 1);
  if (held_ == Held::Heap) ::operator delete(data_);
  if (charged_) budget_->give_back(charged_);
}

void FileBytes::charge(uint64_t bytes, const char* purpose) {
  budget_->take(bytes, "'" + name_ + "'", purpose);
  charged_ += bytes;
}

void FileBytes::check() const {
  if (whole_) return whole_->check();
  if (!is_file_) return;
  expect_whole();
  refuse_shorter();
}

void FileBytes::refuse_lost() const {
  const FileBytes& file = whole_ ? *whole_ : *this;
  file.refuse_shorter();
  refuse_file(file.name_, "cannot be read to its end: it was shorter for a while, or its device failed", kRename);
}

void FileBytes::refuse_shorter() const {
  struct stat st {};
  // A new file under the same name does not invalidate the mapped one.
  const bool same = stat(name_.c_str(), &st) == 0 && st.st_dev == device_ && st.st_ino == inode_;
  if (same && static_cast<size_t>(st.st_size) < size_)
    refuse_file(name_,
                "became shorter while it was read: it had " + quantity(size_, "byte") + " and has " +
                    std::to_string(st.st_size),
                kRename);
}

void FileBytes::shrink(size_t size) {
  if (size >= size_) return;
  if (size <= small_content) return move_to_heap(size);
  void* p = mremap(data_, size_, size, MREMAP_MAYMOVE);
  if (p == MAP_FAILED) return move_to_heap(size);  // no more mappings
  data_ = static_cast<uint8_t*>(p);
  size_ = size;
}

void FileBytes::move_to_heap(size_t size) {
  uint8_t* data = heap_bytes(size);
  std::memcpy(data, data_, size);
  munmap(data_, size_);
  data_ = data;
  size_ = size;
  held_ = Held::Heap;
}

void refuse_unpacked(const FileBytes& packed, size_t ceiling, size_t limit) {
  const Budget& budget = *packed.budget();
  if (ceiling < limit || limit < budget.left())
    refuse_file(packed.name(), "decompresses to more than " + std::to_string(ceiling) + " bytes",
                "decompress it first");
  budget.refuse(ceiling + 1, "'" + packed.name() + "'", "its decompressed content");
}

FileBytesPtr unpacked(FileBytesPtr file, size_t limit) {
  if (is_gzip(*file)) return gunzip(file, limit);
  if (is_zstd(*file)) return unzstd(file, limit);
  return file;
}

}  // namespace harmonics
