// A std::bad_alloc that states the requested size. Allocates no memory itself.
#pragma once

#include <cstddef>
#include <cstdio>
#include <new>

namespace harmonics::engine {

class OutOfMemory final : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::size_t bytes) noexcept : bytes_(bytes) {
    std::snprintf(text_, sizeof text_, "not enough memory: %zu bytes were requested", bytes);
  }
  const char* what() const noexcept override { return text_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t bytes_;
  char text_[80];
};

}  // namespace harmonics::engine
