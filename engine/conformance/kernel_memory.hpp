// A kernel run in memory that shows what it does beside its task.
#pragma once

#include <string>
#include <vector>

#include <harmonics/abi.h>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics {

// What no call as small as those of these checks needs: more than a million parts, or a gigabyte of workspace. "": neither.
std::string out_of_proportion(const hx_kernel& kernel);

// Runs all parts with guards around every buffer, twice: in their order with results and workspace that hold zeros, and those of a
// phase from the last to the first with rubbish in them. What was done wrong, such as "writes outside result 1"; "": nothing, and
// `given` (null: nobody asks) are the results. `device`: for kernels that are queued, whose; its memory is guarded likewise.
std::string run_guarded(const hx_kernel& kernel, const std::vector<HTensor>& inputs, const std::vector<TensorType>& results,
                        std::vector<HTensor>* given = nullptr, const ItemPtr& device = nullptr);

// Likewise, with results in the memory of inputs: `replaced` has the input of each result, -1: memory of its own. Does it give
// the bits of `expected`?
std::string run_replacing(const hx_kernel& kernel, const std::vector<HTensor>& inputs, const std::vector<HTensor>& expected,
                          const std::vector<int64_t>& replaced, const ItemPtr& device = nullptr);

// Likewise by enqueue_if_finite. Where `number` is not finite: does it leave inputs and results as they are?
std::string run_looking(const hx_kernel& kernel, const std::vector<HTensor>& inputs, const std::vector<HTensor>& expected,
                        const std::vector<int64_t>& replaced, float number, const ItemPtr& device);

// Likewise, with the parts of each phase on `threads` threads at once; what is queued runs once.
std::string run_on_threads(const hx_kernel& kernel, const std::vector<HTensor>& inputs, const std::vector<HTensor>& expected, int threads,
                           const ItemPtr& device = nullptr);

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
  // With the guards.
  static constexpr size_t kGuard = 256;
  unsigned char* whole() { return start_ - kGuard; }
  size_t whole_size() const { return size_ + 2 * kGuard; }

 private:
  size_t size_;
  std::vector<unsigned char> memory_;
  unsigned char* start_;  // 64-byte aligned
};

}  // namespace harmonics
