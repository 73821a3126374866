// Runs kernels in guarded memory to detect invalid accesses.
#pragma once

#include <string>
#include <vector>

#include <harmonics/abi.h>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

// Detects absurd requirements for small calls: more than a million parts, or a gigabyte of workspace. "": none.
std::string out_of_proportion(const hx_kernel& kernel);

// Runs all parts twice with guards around every buffer: in order, with results and workspace zeroed; and each phase in
// reverse order, with 0xFF bytes in them. Returns the fault, such as "writes outside result 1", or "" and the results
// in `given` (may be null). `device`: for queued kernels; device memory is guarded too.
std::string run_guarded(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                        const std::vector<TensorType>& results, std::vector<HTensor>* given = nullptr,
                        const ItemPtr& device = nullptr);

// Like run_guarded(), with results in the memory of inputs: `replaced` has an input for each result, -1: separate
// memory. Checks that the bits equal `expected`.
std::string run_replacing(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                          const std::vector<HTensor>& expected, const std::vector<int64_t>& replaced,
                          const ItemPtr& device = nullptr);

// Like run_replacing(), by enqueue_if_finite. If `number` is not finite, checks that inputs and results keep their
// contents.
std::string run_looking(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                        const std::vector<HTensor>& expected, const std::vector<int64_t>& replaced, float number,
                        const ItemPtr& device);

// Like run_guarded(), with the parts of each phase on `threads` threads at once; queued kernels run once.
std::string run_on_threads(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                           const std::vector<HTensor>& expected, int threads, const ItemPtr& device = nullptr);

// Memory between two guards.
class GuardedBytes {
 public:
  // `fill`: initial contents between the guards.
  GuardedBytes(size_t size, unsigned char fill);
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  unsigned char* data() { return start_; }
  const unsigned char* data() const { return start_; }
  size_t size() const { return size_; }
  bool intact() const;  // the guards are unchanged
  // Size of a guard; whole() includes the guards.
  static constexpr size_t kGuard = 256;
  unsigned char* whole() { return start_ - kGuard; }
  size_t whole_size() const { return size_ + 2 * kGuard; }

 private:
  size_t size_;
  std::vector<unsigned char> memory_;
  unsigned char* start_;  // 64-byte aligned
};

}  // namespace harmonics::engine
