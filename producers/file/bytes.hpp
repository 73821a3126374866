// The bytes of a file: mapped, or unpacked into memory of our own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <harmonics/budget.hpp>
#include <harmonics/error.hpp>
#include <harmonics/file_mapping.hpp>

namespace harmonics {

// The memory that the files of one address may take: first_allowance, and allowance_per_byte for each of their bytes;
// or exactly `most` (memory=). What a file unpacks to, its decoded samples and its tables count, mapped files do not.
constexpr uint64_t first_allowance = uint64_t{256} << 20, allowance_per_byte = 64;
using BudgetPtr = std::shared_ptr<Budget>;
BudgetPtr file_budget(uint64_t most = 0);

// Read-only and shared; the readers below keep it alive.
class FileBytes {
 public:
  // Maps a regular file, or reads a small one. Errors: NoInput with the system's reason. A budget without a limit from
  // memory= grows by the file's allowance; null: one of its own.
  static std::shared_ptr<const FileBytes> open(const std::string& path, BudgetPtr budget = nullptr);
  // Memory of a caller, copied; `name` stands in errors.
  static std::shared_ptr<const FileBytes> copy(std::string name, const void* data, size_t size);
  // A piece of it under another name.
  static std::shared_ptr<const FileBytes> piece(const std::shared_ptr<const FileBytes>& whole, std::string name,
                                                size_t offset, size_t size);
  // Zeroed memory to be written by its maker before it is shared. Takes pages only as they are written; charge() counts
  // them.
  static std::shared_ptr<FileBytes> reserve(std::string name, size_t size, BudgetPtr budget);

  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes();

  const std::string& name() const { return name_; }
  const uint8_t* data() const { return data_; }
  uint8_t* writable() { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  // Throws when the mapped file has become shorter since it was opened. That is a call of the system.
  void check() const;
  // Throws when something that was read were zeros in place of what went away. After every reading: read_whole().
  void expect_whole() const {
    if (lost_->load(std::memory_order_acquire)) refuse_lost();
  }
  // Gives back what lies behind the first `size` bytes.
  void shrink(size_t size);
  // Of all that is made of this file.
  const BudgetPtr& budget() const { return budget_; }
  // Takes `bytes` of the budget until this object ends. `purpose`: "its unpacked content".
  void charge(uint64_t bytes, const char* purpose);

 private:
  enum class Held { File, Mapping, Heap, Piece };  // File: by mapping_
  FileBytes(std::string name, uint8_t* data, size_t size, Held held, BudgetPtr budget)
      : name_(std::move(name)), data_(data), size_(size), held_(held), budget_(std::move(budget)) {}
  void move_to_heap(size_t size);
  [[noreturn]] void refuse_lost() const;
  void refuse_shorter() const;  // by its size

  std::string name_;
  uint8_t* data_;
  size_t size_;
  Held held_;
  BudgetPtr budget_;
  uint64_t charged_ = 0;
  std::shared_ptr<const FileBytes> whole_;  // what this is a piece of
  // The file, for check(): a descriptor kept open would limit how many files one stream can have.
  bool is_file_ = false;
  FileMapping mapping_;
  const std::atomic<bool>* lost_ = &mapping_.lost_flag();  // or the whole's
  uint64_t device_ = 0, inode_ = 0;
};
using FileBytesPtr = std::shared_ptr<const FileBytes>;

// "'x.idx' <what>; <remedy>" as ErrorKind::Stream.
[[noreturn]] void refuse_file(const std::string& name, const std::string& what, const std::string& remedy = "");

// What gzip and zstd packed comes out unpacked, everything else as it is. Memory grows only with what really comes out,
// never beyond `limit`. A cut or damaged stream is an error that says where.
constexpr size_t most_unpacked = size_t{16} << 30;
FileBytesPtr unpacked(FileBytesPtr file, size_t limit = most_unpacked);

// More than `ceiling` bytes came out. Where that is what the budget allows, its reason and remedy are said too.
[[noreturn]] void refuse_unpacked(const FileBytes& packed, size_t ceiling, size_t limit);

bool is_gzip(const FileBytes& file);
// Unpacks all members. Memory grows only with what really comes out, and never beyond `limit`; when the content is IDX,
// its header must promise exactly what comes out. A cut or damaged stream is an error that says where.
FileBytesPtr gunzip(const FileBytesPtr& packed, size_t limit = most_unpacked);
bool is_zstd(const FileBytes& file);
// Unpacks all frames; refuses what comes out more than 4096 times as large, beyond a first 64 MiB.
FileBytesPtr unzstd(const FileBytesPtr& packed, size_t limit = most_unpacked);

}  // namespace harmonics
