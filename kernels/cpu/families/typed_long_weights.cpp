// Vector code of typed_weights.cpp for weights stored in blocks of 256. It is a source of its own because it takes long
// to compile.
#ifdef HM_ISA

#include <harmonics/abi.h>

#include "long_blocks.hpp"
#include "typed_products.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

template <typename Then>
HM_INLINE void with_long_type(uint32_t dtype, Then then) {
  switch (dtype) {
    case HX_Q2_K:
      return then(TwoBits{});
    case HX_Q3_K:
      return then(ThreeBits{});
    case HX_Q4_K:
      return then(Quarters{});
    case HX_Q5_K:
      return then(FiveAndMinima{});
    case HX_Q6_K:
      return then(SixBits{});
    default:
      return then(UnevenRuns{});
  }
}

}  // namespace

void multiply_long_blocks(const TypedContext& c, const float* a, const char* w, float* y, int64_t m, int64_t n) {
  with_long_type(c.dtype, [&](auto type) { typed_block<decltype(type)>(c, a, w, y, m, n); });
}

void decode_long_blocks(uint32_t dtype, const char* row, float* to, int64_t depth) {
  with_long_type(dtype, [&](auto type) { decode_row<decltype(type)>(row, to, depth); });
}

}  // namespace harmonics::cpu::HM_ISA

#endif
