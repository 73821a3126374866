// Immutable bytes and their owner: a vector, a library's message, or a piece of a socket's read buffer.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace harmonics::wire {

struct OwnedBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;

  size_t size() const { return bytes.size(); }
  explicit operator bool() const { return owner != nullptr; }
};

inline OwnedBytes owned(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> all(*owner);
  return {std::move(owner), all};
}

}  // namespace harmonics::wire
