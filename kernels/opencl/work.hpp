// The kernel launches of a call site, and call sites for planning code.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <harmonics/device.hpp>

#include "kernels/shared/plan_table.hpp"
#include "kernels/shared/queued_device.hpp"
#include "kernels/shared/scalar_texts.hpp"
#include "kernels/shared/walk.hpp"
#include "machine.hpp"

namespace harmonics::opencl {

using kernels::count;
using kernels::dims;
using kernels::is_float;
using kernels::is_half;
using kernels::is_signed;
using kernels::kLooked;
using kernels::kMostElements;
using kernels::strides;
using kernels::type_name;
using kernels::Walk;
using kernels::width;
using kernels::word_name;
const char* sum_name(uint32_t dtype);  // accumulator type
// Returns a literal of the arithmetic type: "0.1f", "-INFINITY", "(uchar)1".
std::string literal(uint32_t dtype, double value);

// Source text: an expression that loads element `at` of a buffer; a statement that rounds and stores an element; the
// value rounded to the type.
std::string read(uint32_t dtype, uint32_t buffer, const std::string& at);
std::string write(uint32_t dtype, uint32_t buffer, const std::string& at, const std::string& value);
std::string rounded(uint32_t dtype, const std::string& value);
// Macros for sources independent of types: NAME, the arithmetic type; NAME_READ(buffer, at) and NAME_WRITE(buffer, at,
// value), as read() and write().
std::string element_macros(const std::string& name, uint32_t dtype);

class Site : public kernels::Site {
 public:
  Site(const hx_call_site& raw, Machine& machine) : kernels::Site(raw), machine_(machine) {}
  Machine& machine() const { return machine_; }

 private:
  Machine& machine_;
};

// A kernel launch. Its first arguments are the buffers, each with its offset: BUFFER(0), BUFFER(1) ... in the order of
// `buffers`.
class Launch {
 public:
  Launch(Machine& machine, const std::string& body, const char* name, std::vector<uint32_t> buffers);
  Launch(Launch&& other) noexcept
      : kernel_(std::exchange(other.kernel_, nullptr)),
        buffers_(std::move(other.buffers_)),
        set_(std::move(other.set_)),
        next_(other.next_),
        copies_(other.copies_) {
    std::copy_n(other.global_, 3, global_);
    std::copy_n(other.local_, 3, local_);
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  ~Launch();

  template <typename T>
  Launch& with(T value) {
    return set(sizeof value, &value);
  }
  Launch& with_all(const std::vector<uint32_t>& values);
  Launch& with_number(uint32_t dtype, double value);  // converted to the arithmetic type of `dtype`
  // Launches at least `threads` threads in one dimension; the kernel ignores the excess.
  Launch& over(int64_t threads);
  Launch& groups(size_t x, size_t y, size_t z, size_t local_x, size_t local_y = 1);
  // Declares a copy from the first buffer to the second, which is skipped if they are the same.
  Launch& unless_same() {
    copies_ = true;
    return *this;
  }
  void enqueue(cl_command_queue queue, const hx_place* places, const hx_place* number = nullptr) const;

 private:
  Launch& set(size_t bytes, const void* value);

  cl_kernel kernel_;
  std::vector<uint32_t> buffers_;
  mutable std::vector<hx_place> set_;  // current buffer arguments
  cl_uint next_;
  bool copies_ = false;
  size_t global_[3] = {1, 1, 1}, local_[3] = {1, 1, 1};
};

// A constant buffer of a kernel.
class Constant {
 public:
  Constant(Machine& machine, const void* from, size_t bytes);
  Constant(Constant&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  Constant(const Constant&) = delete;
  Constant& operator=(const Constant&) = delete;
  ~Constant();
  cl_mem memory() const { return memory_; }

 private:
  cl_mem memory_;
};

struct Work {
  std::vector<Launch> launches;
  std::vector<Constant> constants = {};
  bool looks = false;  // every kernel that writes results can check a number first

  void enqueue(hx_queue* queue, const hx_place* places, const hx_place* number) const {
    for (const Launch& launch : launches) launch.enqueue(queue_of(queue).now, places, number);
  }
};

// Fills `out` with a kernel that owns the work.
hx_kernel& answer(hx_kernel& out, Work work, const char* name);

// A family's planning function. Returns true and fills `out` if it supports the site; else declines with a reason.
using Plan = bool (*)(const Site& site, hx_kernel& out);
using PlanRow = kernels::PlanRow<Plan>;

// Pads a walk to at least this number of axes, since source texts depend on the number.
void widen(Walk& walk, size_t axes);
// Returns "uint a0 = ..., a1 = ...;": the offset of element `number` in each array. Names of the walk's parameters
// begin with `prefix`.
std::string walk_text(const Walk& walk, const std::string& number, const std::string& prefix,
                      const std::vector<std::string>& places);
std::string walk_parameters(const Walk& walk, const std::string& prefix);  // ", uint w_d0, int w_s0_0 ..."
std::vector<uint32_t> walk_values(const Walk& walk);                       // of the parameters, in order

}  // namespace harmonics::opencl
