// Stores the tokens of a data set, one document after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <harmonics/file_mapping.hpp>

namespace harmonics::engine {

// A token is stored as its id, or as ~id if it is not learned. Up to `limit` bytes are kept in memory; larger data is
// written to an unlinked temporary file and mapped. One thread fills the store; any thread may read it afterwards.
class TokenStore {
 public:
  // `name` is the data set's name for messages.
  TokenStore(std::string name, uint64_t limit);
  TokenStore(const TokenStore&) = delete;
  TokenStore& operator=(const TokenStore&) = delete;
  ~TokenStore();

  // Throws ErrorKind::InputOutput if the temporary file cannot be written.
  void add(std::span<const int32_t> document);
  // Must be called after the last document.
  void finish();

  uint64_t documents() const { return begins_.size() - 1; }
  uint64_t tokens() const { return begins_.back(); }
  uint64_t begin(uint64_t document) const { return begins_[document]; }
  uint64_t length(uint64_t document) const { return begins_[document + 1] - begins_[document]; }
  // Returns the tokens of all documents. Valid after finish().
  const int32_t* data() const { return mapped_ ? mapped_ : memory_.data(); }

 private:
  void spill();
  [[noreturn]] void fail(const char* what, int number) const;

  std::string name_;
  uint64_t limit_;
  std::vector<uint64_t> begins_{0};
  std::vector<int32_t> memory_;
  int file_ = -1;
  uint64_t written_ = 0;  // bytes
  const int32_t* mapped_ = nullptr;
};

}  // namespace harmonics::engine
