// The bytes of a file: mapped, or unpacked into memory of our own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <harmonics/error.hpp>

namespace harmonics {

// Read-only and shared; the readers below keep it alive.
class FileBytes {
 public:
  // Maps a regular file. Errors: NoInput with the system's reason.
  static std::shared_ptr<const FileBytes> open(const std::string& path);
  // Somebody else's memory, copied; `name` stands in errors.
  static std::shared_ptr<const FileBytes> copy(std::string name, const void* data, size_t size);
  // A piece of it under another name.
  static std::shared_ptr<const FileBytes> piece(const std::shared_ptr<const FileBytes>& whole, std::string name,
                                                size_t offset, size_t size);
  // Zeroed memory to be written by its maker before it is shared. Takes pages only as they are written.
  static std::shared_ptr<FileBytes> reserve(std::string name, size_t size);

  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes();

  const std::string& name() const { return name_; }
  const uint8_t* data() const { return data_; }
  uint8_t* writable() { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  // Throws when the mapped file has become shorter since it was opened: touching its lost pages would end the process.
  void check() const;
  // Gives back what lies behind the first `size` bytes.
  void shrink(size_t size);

 private:
  FileBytes(std::string name, uint8_t* data, size_t size) : name_(std::move(name)), data_(data), size_(size) {}

  std::string name_;
  uint8_t* data_;
  size_t size_;
  std::shared_ptr<const FileBytes> whole_;  // what this is a piece of
  // The mapped file, for check(): a descriptor kept open would limit how many files one stream can have.
  bool mapped_ = false;
  uint64_t device_ = 0, inode_ = 0;
};
using FileBytesPtr = std::shared_ptr<const FileBytes>;

// "'x.idx' <what>; <remedy>" as ErrorKind::Stream.
[[noreturn]] void refuse_file(const std::string& name, const std::string& what, const std::string& remedy = "");

// What gzip and zstd packed comes out unpacked, everything else as it is. Memory grows only with what really comes out,
// never beyond `limit`. A cut or damaged stream is an error that says where.
constexpr size_t most_unpacked = size_t{16} << 30;
FileBytesPtr unpacked(FileBytesPtr file, size_t limit = most_unpacked);

bool is_gzip(const FileBytes& file);
// Unpacks all members. Memory grows only with what really comes out, and never beyond `limit`; when the content is IDX,
// its header must promise exactly what comes out. A cut or damaged stream is an error that says where.
FileBytesPtr gunzip(const FileBytesPtr& packed, size_t limit = most_unpacked);
bool is_zstd(const FileBytes& file);
// Unpacks all frames; refuses what comes out more than 4096 times as large, beyond a first 64 MiB.
FileBytesPtr unzstd(const FileBytesPtr& packed, size_t limit = most_unpacked);

}  // namespace harmonics
