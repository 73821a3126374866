#include "work.hpp"

#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace harmonics::opencl {

namespace {

constexpr size_t kGroup = 64;  // threads of a one-dimensional work-group

const char kPrelude[] = R"(
#pragma OPENCL FP_CONTRACT OFF
#define BUFFER(n) global uchar* b##n, ulong o##n
#define AT(T, n) ((global T*)(b##n + o##n))
)";

// Conversions of 16-bit floats, which exist only in memory. Included in programs that use them.
const char kHalves[] = R"(
float f16_get(global const ushort* p, ulong i) { return vload_half(i, (global const half*)p); }
void f16_put(global ushort* p, ulong i, float v) { vstore_half_rte(v, i, (global half*)p); }
float f16_rounded(float v) {
  ushort bits;
  vstore_half_rte(v, 0, (half*)&bits);
  return vload_half(0, (const half*)&bits);
}
ushort bf16_bits(float v) {
  const uint bits = as_uint(v);
  return (ushort)(v != v ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float bf16_of(ushort bits) { return as_float((uint)bits << 16); }
float bf16_get(global const ushort* p, ulong i) { return bf16_of(p[i]); }
void bf16_put(global ushort* p, ulong i, float v) { p[i] = bf16_bits(v); }
float bf16_rounded(float v) { return bf16_of(bf16_bits(v)); }
)";

std::string source_of(const Machine& machine, const std::string& body) {
  std::string text = machine.has_f64() ? "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n" : "";
  text += kPrelude;
  if (body.find("f16_") != std::string::npos) text += kHalves;
  return text + body;
}

const char* half_name(uint32_t dtype) { return dtype == HX_F16 ? "f16" : "bf16"; }

}  // namespace

const char* sum_name(uint32_t dtype) {
  return is_float(dtype) ? type_name(dtype) : is_signed(dtype) ? "long" : "ulong";
}

std::string literal(uint32_t dtype, double value) {
  if (!is_float(dtype))
    return "((" + std::string(type_name(dtype)) + ")" + std::to_string(static_cast<int64_t>(value)) + ")";
  const bool wide = dtype == HX_F64;
  if (std::isnan(value)) return wide ? "((double)NAN)" : "NAN";
  if (std::isinf(value)) return value > 0 ? "INFINITY" : "(-INFINITY)";
  char text[64];
  std::snprintf(text, sizeof text, wide ? "(%.17e)" : "(%.9ef)",
                wide ? value : static_cast<double>(static_cast<float>(value)));
  return text;
}

std::string read(uint32_t dtype, uint32_t buffer, const std::string& at) {
  const std::string n = std::to_string(buffer);
  if (is_half(dtype)) return std::string(half_name(dtype)) + "_get(AT(ushort, " + n + "), " + at + ")";
  return std::string("AT(") + type_name(dtype) + ", " + n + ")[" + at + "]";
}
std::string write(uint32_t dtype, uint32_t buffer, const std::string& at, const std::string& value) {
  const std::string n = std::to_string(buffer);
  if (is_half(dtype)) return std::string(half_name(dtype)) + "_put(AT(ushort, " + n + "), " + at + ", " + value + ");";
  return std::string("AT(") + type_name(dtype) + ", " + n + ")[" + at + "] = (" + type_name(dtype) + ")(" + value +
         ");";
}
std::string rounded(uint32_t dtype, const std::string& value) {
  return is_half(dtype) ? std::string(half_name(dtype)) + "_rounded(" + value + ")" : value;
}
std::string element_macros(const std::string& name, uint32_t dtype) {
  const std::string type = type_name(dtype), half = is_half(dtype) ? half_name(dtype) : "";
  const std::string get = half.empty() ? "AT(" + type + ", n)[i]" : half + "_get(AT(ushort, n), i)";
  const std::string put =
      half.empty() ? "AT(" + type + ", n)[i] = (" + type + ")(v)" : half + "_put(AT(ushort, n), i, v)";
  return "#define " + name + " " + type + "\n#define " + name + "_READ(n, i) " + get + "\n#define " + name +
         "_WRITE(n, i, v) " + put + "\n";
}

Launch::Launch(Machine& machine, const std::string& body, const char* name, std::vector<uint32_t> buffers)
    : kernel_(machine.kernel(source_of(machine, body), name)),
      buffers_(std::move(buffers)),
      set_(buffers_.size(), hx_place{0, ~uint64_t{0}}),
      next_(static_cast<cl_uint>(2 * buffers_.size())) {}

Launch::~Launch() {
  if (kernel_) clReleaseKernel(kernel_);
}

Launch& Launch::set(size_t bytes, const void* value) {
  check(clSetKernelArg(kernel_, next_++, bytes, value), "take a kernel's argument");
  return *this;
}
Launch& Launch::with_all(const std::vector<uint32_t>& values) {
  for (const uint32_t v : values) with(v);
  return *this;
}
Launch& Launch::with_number(uint32_t dtype, double value) {
  switch (dtype) {
    case HX_F16:
    case HX_BF16:
    case HX_F32:
      return with(static_cast<float>(value));
    case HX_F64:
      return with(value);
    case HX_BOOL:
      return with(static_cast<uint8_t>(value != 0));
    default:
      break;
  }
  const int64_t whole = value != value ? 0 : static_cast<int64_t>(value);
  switch (width(dtype)) {
    case 1:
      return with(static_cast<int8_t>(whole));
    case 2:
      return with(static_cast<int16_t>(whole));
    case 4:
      return with(static_cast<int32_t>(whole));
    default:
      return with(whole);
  }
}
Launch& Launch::over(int64_t threads) {
  return groups((static_cast<size_t>(threads) + kGroup - 1) / kGroup, 1, 1, kGroup);
}
Launch& Launch::groups(size_t x, size_t y, size_t z, size_t local_x, size_t local_y) {
  const size_t local[3] = {local_x, local_y, 1}, number[3] = {x, y, z};
  for (int i = 0; i < 3; ++i) {
    local_[i] = local[i];
    global_[i] = number[i] * local[i];
  }
  return *this;
}

// Sets only the buffer arguments that have changed, since addresses rarely change.
void Launch::enqueue(cl_command_queue queue, const hx_place* places, const hx_place* number) const {
  const hx_place none{0, 0};
  if (copies_) {
    const hx_place &from = places[buffers_[0]], &to = places[buffers_[1]];
    if (from.buffer == to.buffer && from.offset == to.offset) return;
  }
  for (cl_uint i = 0; i < buffers_.size(); ++i) {
    const hx_place& p = buffers_[i] != kLooked ? places[buffers_[i]] : number ? *number : none;
    if (p.buffer == set_[i].buffer && p.offset == set_[i].offset) continue;
    const auto memory = reinterpret_cast<cl_mem>(p.buffer);
    const cl_ulong offset = p.offset;
    check(clSetKernelArg(kernel_, 2 * i, sizeof memory, &memory), "take a kernel's buffer");
    check(clSetKernelArg(kernel_, 2 * i + 1, sizeof offset, &offset), "take a kernel's buffer");
    set_[i] = p;
  }
  check(clEnqueueNDRangeKernel(queue, kernel_, 3, nullptr, global_, local_, 0, nullptr, nullptr), "queue a kernel");
}

Constant::Constant(Machine& machine, const void* from, size_t bytes) {
  cl_int code = CL_SUCCESS;
  memory_ =
      clCreateBuffer(machine.context(), CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, bytes, const_cast<void*>(from), &code);
  check(code, "give memory");
}
Constant::~Constant() {
  if (memory_) clReleaseMemObject(memory_);
}

hx_kernel& answer(hx_kernel& out, Work work, const char* name) {
  const bool looks = work.looks;
  return kernels::answer(out, std::move(work), looks, name);
}

void widen(Walk& walk, size_t axes) {
  if (walk.sizes.size() >= axes) return;
  const size_t more = axes - walk.sizes.size();
  walk.sizes.insert(walk.sizes.begin(), more, 1);
  for (auto& s : walk.strides) s.insert(s.begin(), more, 0);
}

// The size of the first axis is not needed: its index is the last quotient.
std::string walk_text(const Walk& walk, const std::string& number, const std::string& prefix,
                      const std::vector<std::string>& places) {
  std::string s;
  for (size_t a = 0; a < places.size(); ++a)
    s += "  uint " + places[a] + " = " + prefix + "o" + std::to_string(a) + ";\n";
  s += "  { uint rest = " + number + "; uint step;\n";
  for (size_t i = walk.sizes.size(); i-- > 0;) {
    const std::string k = std::to_string(i);
    s += i > 0 ? "    step = rest % " + prefix + "d" + k + "; rest /= " + prefix + "d" + k + ";\n"
               : "    step = rest;\n";
    for (size_t a = 0; a < places.size(); ++a)
      s += "    " + places[a] + " += step * " + prefix + "s" + std::to_string(a) + "_" + k + ";\n";
  }
  return s + "    (void)step; (void)rest; }\n";
}

std::string walk_parameters(const Walk& walk, const std::string& prefix) {
  std::string s;
  for (size_t a = 0; a < walk.strides.size(); ++a) s += ", uint " + prefix + "o" + std::to_string(a);
  for (size_t i = 0; i < walk.sizes.size(); ++i) {
    s += ", uint " + prefix + "d" + std::to_string(i);
    for (size_t a = 0; a < walk.strides.size(); ++a)
      s += ", uint " + prefix + "s" + std::to_string(a) + "_" + std::to_string(i);
  }
  return s;
}

std::vector<uint32_t> walk_values(const Walk& walk) {
  std::vector<uint32_t> v;
  for (const int64_t o : walk.offsets) v.push_back(static_cast<uint32_t>(o));
  for (size_t i = 0; i < walk.sizes.size(); ++i) {
    v.push_back(static_cast<uint32_t>(walk.sizes[i]));
    for (const auto& s : walk.strides) v.push_back(static_cast<uint32_t>(s[i]));  // negative strides wrap
  }
  return v;
}

}  // namespace harmonics::opencl
