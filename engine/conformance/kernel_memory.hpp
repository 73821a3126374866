// A kernel run in memory that shows what it does beside its task.
#pragma once

#include <string>
#include <vector>

#include <harmonics/abi.h>

#include "engine/tensor/value.hpp"

namespace harmonics {

// Runs all parts with guards around every buffer, twice: in their order with results and workspace that hold zeros, and those of a
// phase from the last to the first with rubbish in them. What was done wrong, such as "writes outside result 1"; "": nothing.
std::string run_guarded(const hx_kernel& kernel, const std::vector<HTensor>& inputs, const std::vector<TensorType>& results);

// So many bytes between two guards.
class GuardedBytes {
 public:
  // `fill`: what the bytes between hold at first.
  GuardedBytes(size_t size, unsigned char fill);
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  unsigned char* data() { return start_; }
  const unsigned char* data() const { return start_; }
  size_t size() const { return size_; }
  bool intact() const;  // nobody wrote into the guards

 private:
  static constexpr size_t kGuard = 256;
  size_t size_;
  std::vector<unsigned char> memory_;
  unsigned char* start_;  // 64-byte aligned
};

}  // namespace harmonics
