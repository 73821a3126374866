// The kernel launches of a call site, and call sites as planning code sees them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <harmonics/device.hpp>

#include "kernels/shared/types.hpp"
#include "machine.hpp"

namespace harmonics::opencl {

using kernels::count;
using kernels::dims;
using kernels::is_signed;
using kernels::strides;
using kernels::width;
// arithmetic type: "float", also for f16 and bf16; bool is uchar; null: unsupported
const char* type_name(uint32_t dtype);
const char* word_name(uint32_t dtype);  // unsigned type of the same width
const char* sum_name(uint32_t dtype);   // accumulator type
inline bool is_half(uint32_t dtype) { return dtype == HX_F16 || dtype == HX_BF16; }
inline bool is_float(uint32_t dtype) { return dtype == HX_F32 || dtype == HX_F64 || is_half(dtype); }
// A literal of that type: "0.1f", "-INFINITY", "(uchar)1".
std::string literal(uint32_t dtype, double value);

// Expression that loads element `at` of a buffer; statement that stores one, rounded; the value rounded to the type.
std::string read(uint32_t dtype, uint32_t buffer, const std::string& at);
std::string write(uint32_t dtype, uint32_t buffer, const std::string& at, const std::string& value);
std::string rounded(uint32_t dtype, const std::string& value);
// NAME: the arithmetic type. NAME_READ(buffer, at), NAME_WRITE(buffer, at, value): the above as macros, for sources
// independent of types.
std::string element_macros(const std::string& name, uint32_t dtype);

class Site {
 public:
  Site(const hx_call_site& raw, Machine& machine) : raw_(raw), machine_(machine) {}
  std::string_view op() const { return raw_.op; }
  const hx_call_site& raw() const { return raw_; }
  Machine& machine() const { return machine_; }
  uint32_t inputs() const { return raw_.n_inputs; }
  uint32_t outputs() const { return raw_.n_outputs; }
  const hx_type& in(uint32_t i) const { return raw_.inputs[i]; }
  const hx_type& out(uint32_t i = 0) const { return raw_.outputs[i]; }
  uint32_t workspace() const { return inputs() + outputs(); }  // its buffer index
  int64_t integer(const char* name, int64_t otherwise = 0) const {
    return int_attribute(raw_.attributes, name, otherwise);
  }
  double number(const char* name, double otherwise = 0) const {
    return float_attribute(raw_.attributes, name, otherwise);
  }
  bool flag(const char* name) const { return integer(name) != 0; }
  std::string text(const char* name) const { return string_attribute(raw_.attributes, name, ""); }
  std::vector<int64_t> integers(const char* name) const { return ints_attribute(raw_.attributes, name); }

 private:
  const hx_call_site& raw_;
  Machine& machine_;
};

constexpr uint32_t kLooked = ~0u;  // buffer index of the value that a kernel checks; null if none

// A kernel launch. Its first arguments are the buffers, each with its offset: BUFFER(0), BUFFER(1) ... in the order of
// `buffers`.
class Launch {
 public:
  Launch(Machine& machine, const std::string& body, const char* name, std::vector<uint32_t> buffers);
  Launch(Launch&& other) noexcept
      : kernel_(std::exchange(other.kernel_, nullptr)),
        buffers_(std::move(other.buffers_)),
        set_(std::move(other.set_)),
        next_(other.next_) {
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
  // Launches at least `threads` threads in one dimension; the kernel ignores those beyond.
  Launch& over(int64_t threads);
  Launch& groups(size_t x, size_t y, size_t z, size_t local_x, size_t local_y = 1);
  void enqueue(cl_command_queue queue, const hx_place* places, const hx_place* number = nullptr) const;

 private:
  Launch& set(size_t bytes, const void* value);

  cl_kernel kernel_;
  std::vector<uint32_t> buffers_;
  mutable std::vector<hx_place> set_;  // current buffer arguments
  cl_uint next_;
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
};

// Fills `out` with a kernel that owns the work.
hx_kernel& answer(hx_kernel& out, Work work, const char* name);

// A family's planning function: returns true and fills `out` if it supports the site; else it has declined with a
// reason.
using Plan = bool (*)(const Site& site, hx_kernel& out);

// Walk through arrays: sizes and, per array, strides in elements. Adjacent axes are merged where all arrays allow it.
struct Walk {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // by array and axis
  std::vector<int64_t> offsets;               // by array
  void join();
  void widen(size_t axes);  // pads to this minimum of axes: source texts depend on their number
  // "uint a0 = ..., a1 = ...;": the offset in each array of element `number`, from parameters that begin with `prefix`.
  std::string text(const std::string& number, const std::string& prefix, const std::vector<std::string>& places) const;
  std::string parameters(const std::string& prefix) const;  // ", uint w_d0, int w_s0_0 ..."
  std::vector<uint32_t> values() const;                     // of the parameters, in order
};

constexpr int64_t kMostElements = int64_t{1} << 31;  // kernels use 32-bit indices

}  // namespace harmonics::opencl
