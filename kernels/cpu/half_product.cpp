#include "half_product.hpp"

#include <cstdlib>
#include <string>

#include <cpuid.h>
#include <harmonics/error.hpp>

#include "families.hpp"
#include "product_costs.hpp"

namespace harmonics::cpu {
namespace {

constexpr int64_t kLeast = 32;  // minimum size; below, packing costs too much
constexpr double kLeastFlops = 1e6;
constexpr int64_t kHalfRowGranule = 4 * kHalfRows;

struct HalfContext {
  Product product;
  HalfProduct multiply = nullptr;
  uint32_t row_parts = 1, column_parts = 1;
};

// CPUID directly, because g++ 12 has no __builtin_cpu_supports("avx512fp16"). It adds no register state to AVX-512, so
// operating system support needs no further check.
bool has_half_arithmetic() {
  unsigned a, b, c, d;
  return std::string_view(isa().name) == "avx512" && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1);
}

HalfProduct choose() {
  const char* wanted = std::getenv("HARMONICS_FP16");
  const std::string name = wanted ? wanted : "";
  if (name.empty()) return has_half_arithmetic() ? half::native : nullptr;
  if (name == "off") return nullptr;
  if (name != "emulated")
    throw Error(ErrorKind::Device, "HARMONICS_FP16=" + name + " is not known; use emulated or off");
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    return half::emulated;
  throw Error(ErrorKind::Device, "HARMONICS_FP16=emulated needs AVX2 and F16C, which this processor lacks; unset it");
}

void run(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const HalfContext*>(context);
  const Product& p = c.product;
  const uint32_t row = part / c.column_parts, column = part % c.column_parts;
  const int64_t i0 = slice_begin(p.m, kHalfRowGranule, c.row_parts, row),
                i1 = slice_begin(p.m, kHalfRowGranule, c.row_parts, row + 1),
                j0 = slice_begin(p.n, kHalfColumns, c.column_parts, column),
                j1 = slice_begin(p.n, kHalfColumns, c.column_parts, column + 1);
  c.multiply(p, static_cast<const float*>(buffers[p.a]), static_cast<const float*>(buffers[p.b]),
             static_cast<float*>(buffers[p.c]), i0, i1, j0, j1, static_cast<HalfWorkspace*>(buffers[p.c + 1])[part]);
  isa().end_product(p, buffers, i0, i1, j0, j1);
}

// Divides C into parts of whole tiles, rows first. Each part packs its own slices of A and B.
void cut(HalfContext& c, double flops) {
  const Product& p = c.product;
  const uint32_t all = parts_for(flops / product_costs::kHalfRate, INT32_MAX, product_costs::kHalfGrain);
  while (c.row_parts < all && p.m >= 2 * c.row_parts * kHalfRowGranule) c.row_parts *= 2;
  while (c.row_parts * c.column_parts < all && p.n >= 2 * c.column_parts * kHalfColumns) c.column_parts *= 2;
}

}  // namespace

HalfProduct half_product() {
  static const HalfProduct chosen = choose();
  return chosen;
}

bool suits_half_product(const Product& p, double flops) {
  return p.half && half_product() && p.batch == 1 && std::min({p.m, p.n, p.k}) >= kLeast && flops >= kLeastFlops;
}

void answer_half_product(const Product& product, double flops, hx_kernel& out) {
  auto c = std::make_unique<HalfContext>();
  c->product = product;
  c->multiply = half_product();
  cut(*c, flops);
  const uint32_t parts = c->row_parts * c->column_parts;
  const char* name = c->multiply == half::emulated ? "fp16 chunks, emulated" : "fp16 chunks";
  answer(out, std::move(c), run, name, {parts}).workspace = parts * sizeof(HalfWorkspace);
}

}  // namespace harmonics::cpu
