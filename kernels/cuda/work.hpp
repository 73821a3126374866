// The steps of a call site (kernels, copies, products), and call sites for planning code.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <harmonics/function.hpp>

#include "kernels/shared/plan_table.hpp"
#include "kernels/shared/queued_device.hpp"
#include "kernels/shared/walk.hpp"
#include "machine.hpp"

namespace harmonics::cuda {

using kernels::count;
using kernels::dims;
using kernels::is_f32;
using kernels::is_float;
using kernels::is_half;
using kernels::is_signed;
using kernels::kLooked;
using kernels::kMostElements;
using kernels::last;
using kernels::same_shape;
using kernels::strides;
using kernels::Walk;
using kernels::width;
inline uint64_t bytes_of(const hx_type& t) { return static_cast<uint64_t>(count(t)) * width(t.dtype); }
// Sets the bits of an element with this value. False: unsupported type or value.
bool element_bits(uint32_t dtype, double value, uint64_t& bits);

constexpr uint32_t kMostBlocks = 65535;  // limit of the second and third axis of a grid

class Site : public kernels::Site {
 public:
  Site(const hx_call_site& raw, Machine& machine) : kernels::Site(raw), machine_(machine) {}
  Machine& machine() const { return machine_; }
  // Whether products may round their operands. fp16 chunks permit TF32, which has the mantissa of fp16 and the range of
  // f32.
  bool may_round() const { return raw().flags & (HX_SITE_FP16_CHUNKS | HX_SITE_BF16 | HX_SITE_FP8); }
  bool may_round_to_bf16() const { return raw().flags & (HX_SITE_BF16 | HX_SITE_FP8); }
  bool may_round_to_fp8() const { return raw().flags & HX_SITE_FP8; }

 private:
  Machine& machine_;
};

inline char* address(const hx_place& place) { return reinterpret_cast<char*>(place.buffer + place.offset); }

// A buffer of the call and an offset in bytes.
struct Operand {
  uint32_t buffer;
  uint64_t offset = 0;
  char* at(const hx_place* places) const { return address(places[buffer]) + offset; }
};

// Workspace of cuBLASLt and cuDNN, which require the alignment of cudaMalloc. The host guarantees less.
constexpr uint64_t kWorkspaceAlignment = 256;
inline uint64_t workspace_bytes(uint64_t bytes) {
  return (bytes + 2 * kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}
inline char* workspace_at(const Operand& workspace, const hx_place* places) {
  const auto at = reinterpret_cast<uintptr_t>(workspace.at(places));
  return reinterpret_cast<char*>((at + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment);
}

class Step {
 public:
  virtual ~Step() = default;
  virtual void enqueue(Machine& machine, void* stream, const hx_place* places) const = 0;
  // Enqueues the step; if `number` is not finite, it leaves its results unchanged. Steps that write only to the
  // workspace may ignore `number`.
  virtual void enqueue_looking(Machine& machine, void* stream, const hx_place* places, const char* number) const {
    (void)number;
    enqueue(machine, stream, places);
  }
};

class CopyStep final : public Step {
 public:
  CopyStep(Operand to, Operand from, uint64_t bytes) : to_(to), from_(from), bytes_(bytes) {}
  void enqueue(Machine& machine, void* stream, const hx_place* places) const override;

 private:
  Operand to_, from_;
  uint64_t bytes_;
};

// A kernel launch. Arguments: the buffers, including the checked number if any, then the parameters.
class LaunchStep final : public Step {
 public:
  LaunchStep(Function function, const Grid& grid, std::vector<Operand> buffers, const void* parameters, size_t bytes);
  void enqueue(Machine& machine, void* stream, const hx_place* places) const override {
    enqueue_looking(machine, stream, places, nullptr);
  }
  void enqueue_looking(Machine& machine, void* stream, const hx_place* places, const char* number) const override;

 private:
  static constexpr size_t kMostBuffers = 64;
  Function function_;
  Grid grid_;
  std::vector<Operand> buffers_;
  std::vector<std::max_align_t> parameters_;
};

class Work {
 public:
  explicit Work(Machine& machine) : machine_(machine) {}

  template <typename Parameters>
  Work& launch(Function function, const Grid& grid, std::vector<Operand> buffers, const Parameters& parameters) {
    static_assert(std::is_trivially_copyable_v<Parameters>);
    steps_.push_back(std::make_unique<LaunchStep>(function, grid, std::move(buffers), &parameters, sizeof parameters));
    return *this;
  }
  // Launches at least `threads` threads; kernels ignore the excess.
  template <typename Parameters>
  Work& over(int64_t threads, Function function, std::vector<Operand> buffers, const Parameters& parameters) {
    return launch(function, {static_cast<uint32_t>((threads + kThreads - 1) / kThreads), 1, 1, kThreads},
                  std::move(buffers), parameters);
  }
  Work& copy(Operand to, Operand from, uint64_t bytes);  // skipped if they are the same
  Work& add(std::unique_ptr<Step> step);
  // Reserves bytes of the workspace.
  Operand take_workspace(const Site& site, uint64_t bytes);
  uint64_t workspace() const { return workspace_; }
  // Declares that every step that writes results can check a number first.
  void set_looks() { looks_ = true; }
  bool looks() const { return looks_; }

  // Declares the memory that the call uses: its buffers, and `workspace` bytes.
  void set_memory(const Site& site, uint64_t workspace);
  // `number`: null, or the value that steps check.
  void enqueue(hx_queue* queue, const hx_place* places, const hx_place* number = nullptr) const;

 private:
  Machine& machine_;
  struct Memory {  // use of a buffer
    uint64_t bytes;
    bool writes;
  };

  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<Memory> memory_;  // by buffer
  uint64_t workspace_ = 0;
  bool looks_ = false;
};

// Fills `out` with a kernel that owns the work.
hx_kernel& answer(hx_kernel& out, Work work, const char* name);

// A family's planning function. Returns true and fills `out` if it supports the site; else declines with a reason.
using Plan = bool (*)(const Site& site, hx_kernel& out);
using PlanRow = kernels::PlanRow<Plan>;

// Returns a walk as kernel parameters.
template <int kArrays>
Steps<kArrays> steps(const Walk& walk) {
  Steps<kArrays> s{};
  s.rank = static_cast<uint32_t>(walk.sizes.size());
  for (uint32_t i = 0; i < s.rank; ++i) {
    s.sizes[i] = static_cast<uint32_t>(walk.sizes[i]);
    for (size_t a = 0; a < kArrays; ++a) s.strides[a][i] = walk.strides[a][i];
  }
  for (size_t a = 0; a < kArrays; ++a) s.offsets[a] = walk.offsets[a];
  return s;
}

}  // namespace harmonics::cuda
