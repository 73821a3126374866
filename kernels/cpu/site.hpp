// What planning code sees of a call site, and how it answers.
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
// Elements between neighbours of each axis.
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
  // All are f32: 0. Input `i` holds bytes that the attribute `scale` makes numbers, all else is f32: the scale. Nothing otherwise.
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
  // May products be computed in fp16 chunks?
  bool allows_half() const { return raw_.flags & HX_SITE_FP16_CHUNKS; }
  bool flag(const char* name) const { return integer(name) != 0; }
  std::vector<int64_t> integers(const char* name) const { return ints_attribute(raw_.attributes, name); }
  std::string text(const char* name) const { return string_attribute(raw_.attributes, name, ""); }

 private:
  const hx_call_site& raw_;
};

// Nanoseconds of a part: many times what handing it to another thread costs.
constexpr double kGrain = 6000;

// How many parts `nanoseconds` of work are worth, at most `items`: a function of the shapes alone. Powers of two up to
// 16, so that two or four threads come out even.
inline uint32_t parts_for(double nanoseconds, int64_t items, double grain = kGrain) {
  uint32_t parts = 1;
  while (parts < 16 && nanoseconds >= 2 * grain * parts) parts *= 2;
  return static_cast<uint32_t>(std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, items)));
}

// The same for work on rows that neighbouring steps cut alike: two halves are worth it sooner, since each thread has in its caches what it made
// of its rows in the step before. Few rows come from single samples, whose steps are over before another thread has begun.
inline uint32_t parts_for_rows(double nanoseconds, int64_t rows) {
  constexpr double kShortGrain = 640;
  constexpr int64_t kLeastRows = 16;  // of a half
  return std::max(parts_for(nanoseconds, rows), nanoseconds >= 2 * kShortGrain && rows >= 2 * kLeastRows ? 2u : 1u);
}

// Fills `out` with a kernel that owns `context`; Plain is the struct the kernel reads, the owner may add storage behind
// it. Without `parts` there is one phase of context->parts parts.
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

// Each family: true and `out` filled when it serves the site.
using Plan = bool (*)(const Site& site, hx_kernel& out);

}  // namespace harmonics::cpu
