// The bytes of a file: mapped, read, or unpacked into allocated memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <harmonics/budget.hpp>
#include <harmonics/error.hpp>
#include <harmonics/file_mapping.hpp>

#include "formats/origin.hpp"

namespace harmonics {

// The memory budget for the files of one address: first_allowance plus allowance_per_byte for each of their bytes, or
// exactly `most` (memory=). Unpacked content, decoded samples and tables count; mapped files do not.
constexpr uint64_t first_allowance = uint64_t{256} << 20, allowance_per_byte = 64;
using BudgetPtr = std::shared_ptr<Budget>;
BudgetPtr file_budget(uint64_t most = 0);

// Read-only and shared; readers keep it alive by reference counting.
class FileBytes {
 public:
  // Maps a regular file, or reads a small one. Errors: NoInput with the system's reason. A budget not limited by
  // memory= grows by the file's allowance; null: a new budget.
  static std::shared_ptr<const FileBytes> open(const std::string& path, BudgetPtr budget = nullptr);
  // Copies the caller's memory; `name` appears in errors.
  static std::shared_ptr<const FileBytes> copy(std::string name, const void* data, size_t size);
  // Returns a part of `whole` under another name.
  static std::shared_ptr<const FileBytes> piece(const std::shared_ptr<const FileBytes>& whole, std::string name,
                                                size_t offset, size_t size);
  // Allocates zeroed memory, to be written before it is shared. Pages are allocated only as they are written;
  // charge() counts them.
  static std::shared_ptr<FileBytes> reserve(std::string name, size_t size, BudgetPtr budget);

  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes();

  const std::string& name() const { return name_; }
  const uint8_t* data() const { return data_; }
  uint8_t* writable() { return data_; }
  size_t size() const { return size_; }
  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  Origin origin() const { return {name_, ErrorKind::Stream}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  // Throws when the mapped file has become shorter since it was opened. Makes a system call.
  void check() const;
  // Throws if zeros were read in place of lost pages. Call after every read by read_whole().
  void expect_whole() const {
    if (lost_->load(std::memory_order_acquire)) refuse_lost();
  }
  // Frees everything after the first `size` bytes.
  void shrink(size_t size);
  // Returns the budget shared by everything made from this file.
  const BudgetPtr& budget() const { return budget_; }
  // Charges `bytes` to the budget until this object is destroyed. `purpose`: "its unpacked content".
  void charge(uint64_t bytes, const char* purpose);

 private:
  enum class Held { File, Mapping, Heap, Piece };  // File: by mapping_
  FileBytes(std::string name, uint8_t* data, size_t size, Held held, BudgetPtr budget)
      : name_(std::move(name)), data_(data), size_(size), held_(held), budget_(std::move(budget)) {}
  void move_to_heap(size_t size);
  [[noreturn]] void refuse_lost() const;
  void refuse_shorter() const;  // by comparing the size

  std::string name_;
  uint8_t* data_;
  size_t size_;
  Held held_;
  BudgetPtr budget_;
  uint64_t charged_ = 0;
  std::shared_ptr<const FileBytes> whole_;  // the object that this is a part of
  // The file's identity for check(). Keeping descriptors open would limit the number of files in a stream.
  bool is_file_ = false;
  FileMapping mapping_;
  const std::atomic<bool>* lost_ = &mapping_.lost_flag();  // of its own mapping, or of the whole's
  uint64_t device_ = 0, inode_ = 0;
};
using FileBytesPtr = std::shared_ptr<const FileBytes>;

// Throws "'x.idx' <what>; <remedy>" as ErrorKind::Stream.
[[noreturn]] void refuse_file(const std::string& name, const std::string& what, const std::string& remedy = "");

// Returns the unpacked bytes of gzip and zstd, other files unchanged. Memory grows only with the actual output, never
// beyond `limit`. A truncated or damaged stream is an error with its position.
constexpr size_t most_unpacked = size_t{16} << 30;
FileBytesPtr unpacked(FileBytesPtr file, size_t limit = most_unpacked);

// Reports more than `ceiling` unpacked bytes. If the budget sets that limit, adds its reason and remedy.
[[noreturn]] void refuse_unpacked(const FileBytes& packed, size_t ceiling, size_t limit);

bool is_gzip(const FileBytes& file);
// Unpacks all members. Memory grows only with the actual output, never beyond `limit`. For IDX content the header
// must match the output size exactly. A truncated or damaged stream is an error with its position.
FileBytesPtr gunzip(const FileBytesPtr& packed, size_t limit = most_unpacked);
bool is_zstd(const FileBytes& file);
// Unpacks all frames; rejects expansion by more than a factor of 4096, beyond the first 64 MiB.
FileBytesPtr unzstd(const FileBytesPtr& packed, size_t limit = most_unpacked);

}  // namespace harmonics
