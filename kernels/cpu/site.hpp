// Call sites for planning code, and functions that return kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "isa.hpp"
#include "kernels/shared/plan_table.hpp"
#include "kernels/shared/walk.hpp"

namespace harmonics::cpu {

using kernels::count;
using kernels::dims;
using kernels::is_f32;
using kernels::last;
using kernels::same_shape;
using kernels::strides;
using kernels::Walk;
inline int64_t width(uint32_t dtype) { return kernels::width(dtype); }
inline bool is_index(const hx_type& t) { return t.dtype == HX_I32 || t.dtype == HX_I64 || t.dtype == HX_U8; }

class Site : public kernels::Site {
 public:
  using kernels::Site::Site;
  // Returns 0 if all inputs are f32; the attribute `scale` if input `i` is bytes and the others are f32; else nullopt.
  std::optional<float> scale_of(uint32_t i) const {
    const auto scale = static_cast<float>(number("scale"));
    if (scale == 0) return all_f32() ? std::optional(scale) : std::nullopt;
    for (uint32_t k = 0; k < inputs(); ++k)
      if (k == i ? in(k).dtype != HX_U8 : !is_f32(in(k))) return std::nullopt;
    return std::all_of(raw().outputs, raw().outputs + outputs(), is_f32) ? std::optional(scale) : std::nullopt;
  }
  bool is_constant(uint32_t i) const {
    return raw().struct_size >= offsetof(hx_call_site, native) && (raw().constants >> i & 1) != 0;
  }
  // Whether the program changes more than a second-level cache holds, so that each step reads weights from beyond it.
  bool is_cold() const {
    constexpr uint64_t kCache = 2u << 20;
    return raw().struct_size >= sizeof(hx_call_site) && raw().changed_bytes > kCache;
  }
  // Whether products may be computed in fp16 chunks.
  bool allows_half() const { return raw().flags & HX_SITE_FP16_CHUNKS; }
  // Whether operands of products may be rounded to bf16.
  bool allows_bf16() const { return raw().flags & HX_SITE_BF16; }
};

// Minimum nanoseconds of a part: many times the cost of scheduling it on another thread.
constexpr double kGrain = 6000;

constexpr uint32_t kMostParts = 128;  // enough for the largest machines
constexpr uint32_t kUsualParts = 16;  // enough for most machines
constexpr uint32_t kMostSums = 16;

// Returns the number of parts for `nanoseconds` of work, at most `items`; it depends on shapes only. A power of two, so
// that two or four threads have equal shares. Above kUsualParts the parts are larger, because each part of a product
// reads its operands again.
inline uint32_t parts_for(double nanoseconds, int64_t items, double grain = kGrain) {
  constexpr double kLarger = 8;
  uint32_t parts = 1;
  while (parts < kMostParts && nanoseconds >= 2 * grain * parts * (parts < kUsualParts ? 1 : kLarger)) parts *= 2;
  return static_cast<uint32_t>(std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, items)));
}

// Likewise for parts with separate accumulators: their number determines the bits of the result and the memory of the
// accumulators.
inline uint32_t sums_for(double nanoseconds, int64_t items, double grain = kGrain) {
  return std::min(parts_for(nanoseconds, items, grain), kMostSums);
}

// Likewise with a lower threshold, for row-parallel work: the rows of a thread are still in its cache from the previous
// step. Not for few rows, such as single samples, whose steps end before another thread has started.
inline uint32_t parts_for_rows(double nanoseconds, int64_t rows) {
  constexpr double kShortGrain = 640;
  constexpr int64_t kLeastRows = 16;  // per half
  return std::max(parts_for(nanoseconds, rows), nanoseconds >= 2 * kShortGrain && rows >= 2 * kLeastRows ? 2u : 1u);
}

// Fills `out` with a kernel that owns `context`. `Plain` is the struct the kernel reads; `Owner` may add storage. If
// `parts` is empty, the kernel has one phase of context->parts parts.
template <typename Plain = void, typename Owner>
hx_kernel& answer(hx_kernel& out, std::unique_ptr<Owner> context, Run run, const char* name,
                  std::vector<uint32_t> parts = {}) {
  using Read = std::conditional_t<std::is_void_v<Plain>, Owner, Plain>;
  if constexpr (requires { uint32_t{context->parts}; })
    if (parts.empty()) parts.push_back(context->parts);
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

// A kernel in the context of another kernel, which runs and destroys it.
struct InnerKernel : hx_kernel {
  InnerKernel() : hx_kernel{} {}
  InnerKernel(const InnerKernel&) = delete;
  InnerKernel& operator=(const InnerKernel&) = delete;
  using hx_kernel::operator=;
  ~InnerKernel() {
    if (destroy) destroy(context);
  }
};
// Fills `out` with a kernel that has the name, parts and workspace of the inner kernel in `context`.
template <typename Owner>
void answer_as(InnerKernel Owner::*held, hx_kernel& out, std::unique_ptr<Owner> context, Run run) {
  const InnerKernel& inner = (*context).*held;
  answer(out, std::move(context), run, inner.name, {inner.parts, inner.parts + inner.phases}).workspace =
      inner.workspace;
}

// Lets the inner kernel of `out`, whose context is an Owner, have its packed operand: input `input` of `out`.
template <typename Owner, InnerKernel Owner::*kHeld>
void pass_packing(uint32_t input, hx_kernel& out) {
  const hx_kernel& inner = static_cast<const Owner*>(out.context)->*kHeld;
  if (inner.packed_bytes == 0) return;
  out.packed_bytes = inner.packed_bytes;
  out.packed_piece = inner.packed_piece;
  out.packed_input = input;
  out.packing = inner.packing;
  out.pack = [](const void* context, const void* numbers, uint64_t piece, void* packed) {
    const hx_kernel& packs = static_cast<const Owner*>(context)->*kHeld;
    packs.pack(packs.context, numbers, piece, packed);
  };
}

// A family's planning function: returns true and fills `out` if it supports the site.
using Plan = bool (*)(const Site& site, hx_kernel& out);
using PlanRow = kernels::PlanRow<Plan>;

}  // namespace harmonics::cpu
