// The tokens of a data set, one document behind the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <harmonics/file_mapping.hpp>

namespace harmonics::engine {

// A token is its id, or ~id where it is not learned. The first `limit` bytes are kept in memory; more go to a temporary
// file without a name, which is mapped. Filled by one thread, then read by any.
class TokenStore {
 public:
  // `name`: of the data set, for messages.
  TokenStore(std::string name, uint64_t limit);
  TokenStore(const TokenStore&) = delete;
  TokenStore& operator=(const TokenStore&) = delete;
  ~TokenStore();

  // Throws ErrorKind::InputOutput if the temporary file cannot be written.
  void add(std::span<const int32_t> document);
  // To be called after the last document.
  void finish();

  uint64_t documents() const { return begins_.size() - 1; }
  uint64_t tokens() const { return begins_.back(); }
  uint64_t begin(uint64_t document) const { return begins_[document]; }
  uint64_t length(uint64_t document) const { return begins_[document + 1] - begins_[document]; }
  // Of all documents; only after finish().
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
