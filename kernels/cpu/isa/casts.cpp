// Conversions between element types.
#include <harmonics/abi.h>

#include "half_floats.hpp"
#include "kernels.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

struct Bool {
  uint8_t value;
};
template <typename T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
template <>
constexpr bool kIsFloat<double> = true;

// Truncates towards zero, saturates, converts NaN to 0.
template <typename To>
HM_INLINE To whole(double x, double least, double most) {
  return x != x ? To(0) : static_cast<To>(x < least ? least : x > most ? most : x);
}
HM_INLINE uint8_t whole_of(double x, uint8_t) { return static_cast<uint8_t>(whole<int32_t>(x, 0, 255)); }
HM_INLINE int32_t whole_of(double x, int32_t) { return whole<int32_t>(x, INT32_MIN, INT32_MAX); }
HM_INLINE int64_t whole_of(double x, int64_t) {  // 2^63 is a double, 2^63 - 1 is not
  return x >= 0x1p63 ? INT64_MAX : whole<int64_t>(x, -0x1p63, 0x1p63);
}

template <typename To, typename From>
struct Convert {
  HM_INLINE static To of(From x) {
    if constexpr (kIsFloat<From> && !kIsFloat<To>)
      return whole_of(x, To{});
    else
      return static_cast<To>(x);
  }
};
template <typename From>
struct Convert<Bool, From> {
  HM_INLINE static Bool of(From x) { return {x != From(0)}; }
};
template <typename To>
struct Convert<To, Bool> {
  HM_INLINE static To of(Bool x) { return static_cast<To>(x.value); }
};
template <>
struct Convert<Bool, Bool> {
  HM_INLINE static Bool of(Bool x) { return x; }
};

template <typename To, typename From>
void cast_loop(const void* a, const void*, const void*, void* out, int64_t n) {
  const From* x = static_cast<const From*>(a);
  To* y = static_cast<To*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = Convert<To, From>::of(x[i]);
}

void bfloat_to_float(const void* a, const void*, const void*, void* out, int64_t n) {
  widen_bf16(static_cast<const uint16_t*>(a), static_cast<float*>(out), n);
}
void float_to_bfloat(const void* a, const void*, const void*, void* out, int64_t n) {
  narrow_bf16(static_cast<const float*>(a), static_cast<uint16_t*>(out), n);
}
void half_to_float(const void* a, const void*, const void*, void* out, int64_t n) {
  widen_f16(static_cast<const uint16_t*>(a), static_cast<float*>(out), n);
}
void float_to_half(const void* a, const void*, const void*, void* out, int64_t n) {
  narrow_f16(static_cast<const float*>(a), static_cast<uint16_t*>(out), n);
}

#define HM_CAST_TYPES(X) \
  X(HX_BOOL, Bool) X(HX_U8, uint8_t) X(HX_I32, int32_t) X(HX_I64, int64_t) X(HX_F32, float) X(HX_F64, double)

template <typename From>
Block cast_from(uint32_t to) {
  switch (to) {
#define HM_ROW(dtype, Type) \
  case dtype:               \
    return cast_loop<Type, From>;
    HM_CAST_TYPES(HM_ROW)
#undef HM_ROW
    default:
      return nullptr;
  }
}

}  // namespace

Block find_cast(uint32_t from, uint32_t to) {
  if (from == HX_BF16 && to == HX_F32) return bfloat_to_float;
  if (from == HX_F32 && to == HX_BF16) return float_to_bfloat;
  if (from == HX_F16 && to == HX_F32) return half_to_float;
  if (from == HX_F32 && to == HX_F16) return float_to_half;
  switch (from) {
#define HM_ROW(dtype, Type) \
  case dtype:               \
    return cast_from<Type>(to);
    HM_CAST_TYPES(HM_ROW)
#undef HM_ROW
    case HX_I8:
      return to == HX_F32 ? cast_loop<float, int8_t> : nullptr;
    case HX_I16:
      return to == HX_F32 ? cast_loop<float, int16_t> : nullptr;
    case HX_U16:
      return to == HX_F32 ? cast_loop<float, uint16_t> : nullptr;
    default:
      return nullptr;
  }
}

}  // namespace harmonics::cpu::HM_ISA
