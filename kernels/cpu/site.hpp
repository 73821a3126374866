// Call sites as planning code sees them, and how it returns kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <harmonics/device.hpp>

#include "isa.hpp"

namespace harmonics::cpu {

inline int64_t count(const hx_type& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.dims[i];
  return n;
}
inline int64_t last(const hx_type& t) { return t.rank ? t.dims[t.rank - 1] : 1; }
inline bool is_f32(const hx_type& t) { return t.dtype == HX_F32; }
inline bool is_index(const hx_type& t) { return t.dtype == HX_I32 || t.dtype == HX_I64 || t.dtype == HX_U8; }
inline bool same_shape(const hx_type& a, const hx_type& b) {
  return a.rank == b.rank && std::equal(a.dims, a.dims + a.rank, b.dims);
}
inline int64_t width(uint32_t dtype) {
  switch (dtype) {
    case HX_BOOL:
    case HX_U8:
    case HX_I8:
      return 1;
    case HX_I16:
    case HX_U16:
    case HX_F16:
    case HX_BF16:
      return 2;
    case HX_I32:
    case HX_U32:
    case HX_F32:
      return 4;
    default:
      return 8;
  }
}
inline std::vector<int64_t> dims(const hx_type& t) { return {t.dims, t.dims + t.rank}; }
// Stride of each axis, in elements.
inline std::vector<int64_t> strides(const hx_type& t) {
  std::vector<int64_t> s(t.rank, 1);
  for (uint32_t i = t.rank; i-- > 1;) s[i - 1] = s[i] * t.dims[i];
  return s;
}

class Site {
 public:
  explicit Site(const hx_call_site& raw) : raw_(raw) {}
  std::string_view op() const { return raw_.op; }
  const hx_call_site& raw() const { return raw_; }
  uint32_t inputs() const { return raw_.n_inputs; }
  uint32_t outputs() const { return raw_.n_outputs; }
  const hx_type& in(uint32_t i) const { return raw_.inputs[i]; }
  const hx_type& out(uint32_t i = 0) const { return raw_.outputs[i]; }
  bool all_f32() const {
    return std::all_of(raw_.inputs, raw_.inputs + raw_.n_inputs, is_f32) &&
           std::all_of(raw_.outputs, raw_.outputs + raw_.n_outputs, is_f32);
  }
  // Returns 0 if all inputs are f32; the attribute `scale` if input `i` holds bytes and the others f32; else nothing.
  std::optional<float> scale_of(uint32_t i) const {
    const auto scale = static_cast<float>(number("scale"));
    if (scale == 0) return all_f32() ? std::optional(scale) : std::nullopt;
    for (uint32_t k = 0; k < inputs(); ++k)
      if (k == i ? in(k).dtype != HX_U8 : !is_f32(in(k))) return std::nullopt;
    return std::all_of(raw_.outputs, raw_.outputs + raw_.n_outputs, is_f32) ? std::optional(scale) : std::nullopt;
  }
  int64_t integer(const char* name, int64_t otherwise = 0) const {
    return int_attribute(raw_.attributes, name, otherwise);
  }
  double number(const char* name, double otherwise = 0) const {
    return float_attribute(raw_.attributes, name, otherwise);
  }
  // Whether products may be computed in fp16 chunks.
  bool allows_half() const { return raw_.flags & HX_SITE_FP16_CHUNKS; }
  bool flag(const char* name) const { return integer(name) != 0; }
  std::vector<int64_t> integers(const char* name) const { return ints_attribute(raw_.attributes, name); }
  std::string text(const char* name) const { return string_attribute(raw_.attributes, name, ""); }

 private:
  const hx_call_site& raw_;
};

// Minimum nanoseconds of a part; many times the cost of handing it to another thread.
constexpr double kGrain = 6000;

// Number of parts for `nanoseconds` of work, at most `items`; depends on shapes only. Powers of two up to 16, so that
// two or four threads have equal shares.
inline uint32_t parts_for(double nanoseconds, int64_t items, double grain = kGrain) {
  uint32_t parts = 1;
  while (parts < 16 && nanoseconds >= 2 * grain * parts) parts *= 2;
  return static_cast<uint32_t>(std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, items)));
}

// Lower threshold for row-parallel work: each thread's rows are still in its cache from the step before. Not for few
// rows, as in single samples, whose steps end before another thread has started.
inline uint32_t parts_for_rows(double nanoseconds, int64_t rows) {
  constexpr double kShortGrain = 640;
  constexpr int64_t kLeastRows = 16;  // per half
  return std::max(parts_for(nanoseconds, rows), nanoseconds >= 2 * kShortGrain && rows >= 2 * kLeastRows ? 2u : 1u);
}

// Fills `out` with a kernel that owns `context`. Plain is the struct the kernel reads; Owner may add storage. Without
// `parts` there is one phase of context->parts parts.
template <typename Plain = void, typename Owner>
hx_kernel& answer(hx_kernel& out, std::unique_ptr<Owner> context, Run run, const char* name,
                  std::vector<uint32_t> parts = {}) {
  using Read = std::conditional_t<std::is_void_v<Plain>, Owner, Plain>;
  if constexpr (requires { uint32_t{context->parts}; })
    if (parts.empty()) parts = {context->parts};
  Read* read = context.release();
  out.struct_size = sizeof(hx_kernel);
  out.phases = static_cast<uint32_t>(parts.size());
  for (uint32_t i = 0; i < HX_MAX_PHASES; ++i) out.parts[i] = i < parts.size() ? parts[i] : 0;
  out.run = run;
  out.context = read;
  out.destroy = [](void* p) { delete static_cast<Owner*>(static_cast<Read*>(p)); };
  out.workspace = 0;
  out.name = name;
  out.in_place = 0;
  return out;
}

// A family's planning function: returns true and fills `out` if it supports the site.
using Plan = bool (*)(const Site& site, hx_kernel& out);

}  // namespace harmonics::cpu
