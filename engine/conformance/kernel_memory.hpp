// Runs kernels in guarded memory to detect invalid accesses.
#pragma once

#include <string>
#include <vector>

#include <harmonics/abi.h>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

// Describes excessive requirements for a small call: more than a million parts, or a gigabyte of workspace. "" if there
// are none.
std::string out_of_proportion(const hx_kernel& kernel);

// Runs the kernel twice with guards around every buffer: with zeroed results and workspace, and with 0xFF bytes in them
// and the parts of each phase in reverse order. Returns the fault, such as "writes outside result 1", or "" with the
// results in `given` (may be null). `device` runs queued kernels, in guarded device memory.
std::string run_guarded(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                        const std::vector<TensorType>& results, std::vector<HTensor>* given = nullptr,
                        const ItemPtr& device = nullptr);

// Like run_guarded(), with results in the memory of inputs: `replaced` has the input for each result; -1: separate
// memory. Checks that the results equal `expected` bit by bit.
std::string run_replacing(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                          const std::vector<HTensor>& expected, const std::vector<int64_t>& replaced,
                          const ItemPtr& device = nullptr);

// Like run_replacing(), but calls enqueue_if_finite. If `number` is not finite, checks that inputs and results are
// unchanged.
std::string run_looking(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                        const std::vector<HTensor>& expected, const std::vector<int64_t>& replaced, float number,
                        const ItemPtr& device);

// Like run_guarded(), with the parts of each phase on `threads` threads. Queued kernels run once. Checks that the
// results equal `expected` bit by bit.
std::string run_on_threads(const hx_kernel& kernel, const std::vector<HTensor>& inputs,
                           const std::vector<HTensor>& expected, int threads, const ItemPtr& device = nullptr);

// Memory between two guards.
class GuardedBytes {
 public:
  // The bytes between the guards are initialised with `fill`.
  GuardedBytes(size_t size, unsigned char fill);
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  unsigned char* data() { return start_; }
  const unsigned char* data() const { return start_; }
  size_t size() const { return size_; }
  bool intact() const;  // whether the guards are unchanged
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
