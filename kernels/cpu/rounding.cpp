// Chooses the routines that round operands of products.
#include <cstdlib>
#include <string>

#include <cpuid.h>
#include <harmonics/error.hpp>

#include "families.hpp"
#include "rounded_product.hpp"
#include "routes.hpp"

namespace harmonics::cpu {
namespace {

constexpr double kLeastFlops = 1e6;
constexpr int64_t kLeastHalf = 32;                        // smaller sides cost more to pack than they save
constexpr int64_t kLeastBf16 = 16, kLeastBf16Depth = 32;  // smaller ones leave most of a tile empty

// CPUID directly, because g++ 12 has no __builtin_cpu_supports for these. They add no register state to AVX-512, so
// operating system support needs no further check.
bool has_half_arithmetic() {
  unsigned a, b, c, d;
  return std::string_view(isa().name) == "avx512" && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1);
}
bool has_bf16_dots() {
  unsigned a, b, c, d;
  return std::string_view(isa().name) == "avx512" && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
bool has_tiles() {
  constexpr unsigned kTilesOfBf16 = 1u << 22;
  unsigned a, b, c, d;
  return has_bf16_dots() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & kTilesOfBf16) && has_tile_registers();
}

const RoundedRoutines* choose_half() {
  const char* wanted = std::getenv("HARMONICS_FP16");
  const std::string name = wanted ? wanted : "";
  if (name.empty()) return has_half_arithmetic() ? &half::native : nullptr;
  if (name == "off") return nullptr;
  if (name != "emulated")
    throw Error(ErrorKind::Device, "HARMONICS_FP16=" + name + " is not known; use emulated or off");
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
    return &half::emulated;
  throw Error(ErrorKind::Device, "HARMONICS_FP16=emulated needs AVX2 and F16C, which this processor lacks; unset it");
}

const RoundedRoutines* choose_bf16() {
  const char* wanted = std::getenv("HARMONICS_BF16");
  const std::string name = wanted ? wanted : "";
  if (name.empty()) return has_tiles() ? &bf16::tiles : has_bf16_dots() ? &bf16::dots : nullptr;
  if (name == "off") return nullptr;
  if (name == "emulated") return &bf16::emulated;
  if (name != "dots")
    throw Error(ErrorKind::Device, "HARMONICS_BF16=" + name + " is not known; use emulated, dots or off");
  if (has_bf16_dots()) return &bf16::dots;
  throw Error(ErrorKind::Device, "HARMONICS_BF16=dots needs AVX512-BF16, which this processor lacks; unset it");
}

}  // namespace

const RoundedRoutines* half_routines() {
  static const RoundedRoutines* const chosen = choose_half();
  return chosen;
}
const RoundedRoutines* bf16_routines() {
  static const RoundedRoutines* const chosen = choose_bf16();
  return chosen;
}

const RoundedRoutines* rounding_of(const Product& p) {
  if (p.batch != 1 || flops_of(p) < kLeastFlops) return nullptr;
  if (p.bf16 && std::min(p.m, p.n) >= kLeastBf16 && p.k >= kLeastBf16Depth && bf16_routines()) return bf16_routines();
  return p.half && std::min({p.m, p.n, p.k}) >= kLeastHalf ? half_routines() : nullptr;
}

}  // namespace harmonics::cpu
