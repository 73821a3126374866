// Scalar operations over blocks: vector code for f32, scalar loops for the other element types.
#include <type_traits>

#include <harmonics/abi.h>

#include "../block.hpp"
#include "kernels.hpp"
#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// ---- f32 functions
// ----------------------------------------------------------------------------------------------------

#define HM_VECTOR_UNARY(Name, expression)               \
  struct Name {                                         \
    HM_INLINE static vf of(vf x) { return expression; } \
  };
HM_VECTOR_UNARY(Exp, vexp(x))
HM_VECTOR_UNARY(Expm1, vexpm1(x))
HM_VECTOR_UNARY(Log, vlog(x))
HM_VECTOR_UNARY(Log1p, vlog1p(x))
HM_VECTOR_UNARY(Sqrt, vsqrt(x))
HM_VECTOR_UNARY(Rsqrt, 1.0f / vsqrt(x))
HM_VECTOR_UNARY(Tanh, vtanh(x))
HM_VECTOR_UNARY(Erf, verf(x))
HM_VECTOR_UNARY(Logistic, vlogistic(x))
HM_VECTOR_UNARY(Gelu, vgelu(x))
HM_VECTOR_UNARY(Round, vround(x))

template <typename F>
void vector_unary(const void* a, const void*, const void*, void* out, int64_t n) {
  const float* x = static_cast<const float*>(a);
  float* y = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, F::of(load(x + i)));
  if (i < n) store_part(y + i, F::of(load_part(x + i, n - i)), n - i);
}

template <int kQuarter>
void vector_sine(const void* a, const void*, const void*, void* out, int64_t n) {
  const float* x = static_cast<const float*>(a);
  float* y = static_cast<float*>(out);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t k = n - i < kWidth ? n - i : kWidth;
    const vf v = load_part(x + i, k);
    vf r = sine(v, kQuarter);
    const vi large = ~(vabs(v) <= 8192.0f);  // also true for NaN
    for (int64_t j = 0; j < k; ++j)
      if (large[j]) r[j] = kQuarter ? __builtin_cosf(v[j]) : __builtin_sinf(v[j]);
    store_part(y + i, r, k);
  }
}

void vector_sigmoid_cross_entropy(const void* a, const void* b, const void*, void* out, int64_t n) {
  const float *x = static_cast<const float*>(a), *t = static_cast<const float*>(b);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t k = n - i < kWidth ? n - i : kWidth;
    const vf v = load_part(x + i, k), target = load_part(t + i, k);
    const vf loss = maximum(v, vf{}) - v * target + vlog1p(vexp(-vabs(v)));
    store_part(static_cast<float*>(out) + i, loss, k);
  }
}

void vector_sigmoid_cross_entropy_grad(const void* a, const void* b, const void* c, void* out, int64_t n) {
  const float *x = static_cast<const float*>(a), *t = static_cast<const float*>(b), *d = static_cast<const float*>(c);
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t k = n - i < kWidth ? n - i : kWidth;
    const vf g = (vlogistic(load_part(x + i, k)) - load_part(t + i, k)) * load_part(d + i, k);
    store_part(static_cast<float*>(out) + i, g, k);
  }
}

void vector_gelu_grad(const void* a, const void* b, const void*, void* out, int64_t n) {
  const float *x = static_cast<const float*>(a), *dy = static_cast<const float*>(b);
  float* y = static_cast<float*>(out);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) store(y + i, load(dy + i) * gelu_derivative(load(x + i)));
  if (i < n) store_part(y + i, load_part(dy + i, n - i) * gelu_derivative(load_part(x + i, n - i)), n - i);
}

void float_pow(const void* a, const void* b, const void*, void* out, int64_t n) {
  const float *x = static_cast<const float*>(a), *p = static_cast<const float*>(b);
  float* y = static_cast<float*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = p[i] == 2.0f ? x[i] * x[i] : __builtin_powf(x[i], p[i]);
}

// ---- any element type
// ---------------------------------------------------------------------------------------------------

// Operands may alias the result element by element, the only dependence of these loops.
#define HM_UNARY_LOOP(Name, expression)                                      \
  template <typename T>                                                      \
  void Name(const void* a, const void*, const void*, void* out, int64_t n) { \
    const T* pa = static_cast<const T*>(a);                                  \
    T* y = static_cast<T*>(out);                                             \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                   \
      const T x = pa[i];                                                     \
      y[i] = static_cast<T>(expression);                                     \
    }                                                                        \
  }
#define HM_BINARY_LOOP(Name, Result, expression)                               \
  template <typename T>                                                        \
  void Name(const void* a, const void* b, const void*, void* out, int64_t n) { \
    const T *pa = static_cast<const T*>(a), *pb = static_cast<const T*>(b);    \
    Result* y = static_cast<Result*>(out);                                     \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                     \
      const T x = pa[i], z = pb[i];                                            \
      y[i] = static_cast<Result>(expression);                                  \
    }                                                                          \
  }
HM_UNARY_LOOP(loop_neg, T(0) - x)
HM_UNARY_LOOP(loop_copy, x)
HM_UNARY_LOOP(loop_abs, x < T(0) ? T(0) - x : x)
HM_UNARY_LOOP(loop_sign, x > T(0) ? T(1) : x < T(0) ? T(-1) : x)
HM_UNARY_LOOP(loop_not, !x)
HM_BINARY_LOOP(loop_add, T, x + z)
HM_BINARY_LOOP(loop_sub, T, x - z)
HM_BINARY_LOOP(loop_mul, T, x* z)
HM_BINARY_LOOP(loop_div, T, x / z)
HM_BINARY_LOOP(loop_maximum, T, x != x ? x : x > z ? x : z)
HM_BINARY_LOOP(loop_minimum, T, x != x ? x : x < z ? x : z)
HM_BINARY_LOOP(loop_equal, uint8_t, x == z)
HM_BINARY_LOOP(loop_less, uint8_t, x < z)
HM_BINARY_LOOP(loop_less_equal, uint8_t, x <= z)
HM_BINARY_LOOP(loop_and, uint8_t, x& z)
HM_BINARY_LOOP(loop_or, uint8_t, x | z)
HM_BINARY_LOOP(loop_xor, uint8_t, x ^ z)

// Bitwise operations, by width. A shift by the width or more shifts all bits out.
HM_BINARY_LOOP(loop_bit_and, T, x& z)
HM_BINARY_LOOP(loop_bit_or, T, x | z)
HM_BINARY_LOOP(loop_bit_xor, T, x ^ z)
template <typename T>
inline constexpr T kLastBit = 8 * sizeof(T) - 1;
HM_BINARY_LOOP(loop_shift_left, T, z <= kLastBit<T> ? (x + 0u) << (z & kLastBit<T>) : 0)
HM_BINARY_LOOP(loop_shift_right, T, z <= kLastBit<T> ? x >> (z & kLastBit<T>) : 0)
// Arithmetic shift right; T is unsigned.
HM_BINARY_LOOP(loop_shift_sign, T,
               static_cast<std::make_signed_t<T>>(x) >> (z <= kLastBit<T> ? z & kLastBit<T> : kLastBit<T>))

#define HM_QUESTION_LOOP(Name, expression)                                   \
  template <typename T>                                                      \
  void Name(const void* a, const void*, const void*, void* out, int64_t n) { \
    const T* pa = static_cast<const T*>(a);                                  \
    uint8_t* y = static_cast<uint8_t*>(out);                                 \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                   \
      const T x = pa[i];                                                     \
      y[i] = static_cast<uint8_t>(expression);                               \
    }                                                                        \
  }
HM_QUESTION_LOOP(loop_is_nan, x != x)
HM_QUESTION_LOOP(loop_is_inf, x == x && x - x != T(0))

HM_INLINE float negated(float x) { return -x; }
HM_INLINE double negated(double x) { return -x; }
#define HM_FLOAT_LOOP(Name, f32, f64)                     \
  HM_INLINE float Name##_of(float x) { return f32(x); }   \
  HM_INLINE double Name##_of(double x) { return f64(x); } \
  HM_UNARY_LOOP(loop_##Name, Name##_of(x))
HM_FLOAT_LOOP(minus, negated, negated)
HM_FLOAT_LOOP(fabs, __builtin_fabsf, __builtin_fabs)
HM_FLOAT_LOOP(floor, __builtin_floorf, __builtin_floor)
HM_FLOAT_LOOP(ceil, __builtin_ceilf, __builtin_ceil)
#define HM_DOUBLE_LOOP(Name, expression)                                     \
  void Name(const void* a, const void*, const void*, void* out, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) {                                        \
      const double x = static_cast<const double*>(a)[i];                     \
      static_cast<double*>(out)[i] = expression;                             \
    }                                                                        \
  }
HM_DOUBLE_LOOP(double_round, __builtin_rint(x))
HM_DOUBLE_LOOP(double_exp, __builtin_exp(x))
HM_DOUBLE_LOOP(double_expm1, __builtin_expm1(x))
HM_DOUBLE_LOOP(double_log, __builtin_log(x))
HM_DOUBLE_LOOP(double_log1p, __builtin_log1p(x))
HM_DOUBLE_LOOP(double_sqrt, __builtin_sqrt(x))
HM_DOUBLE_LOOP(double_rsqrt, 1 / __builtin_sqrt(x))
HM_DOUBLE_LOOP(double_sin, __builtin_sin(x))
HM_DOUBLE_LOOP(double_cos, __builtin_cos(x))
HM_DOUBLE_LOOP(double_tanh, __builtin_tanh(x))
HM_DOUBLE_LOOP(double_erf, __builtin_erf(x))
HM_DOUBLE_LOOP(double_logistic, 1 / (1 + __builtin_exp(-x)))

HM_INLINE float remainder_of(float x, float z) { return __builtin_fmodf(x, z); }
HM_INLINE double remainder_of(double x, double z) { return __builtin_fmod(x, z); }
HM_BINARY_LOOP(loop_remainder, T, remainder_of(x, z))
HM_INLINE double power_of(double x, double z) { return __builtin_pow(x, z); }
HM_BINARY_LOOP(loop_pow, T, power_of(x, z))

template <typename T>
void loop_select(const void* a, const void* b, const void* c, void* out, int64_t n) {
  const uint8_t* condition = static_cast<const uint8_t*>(a);
  const T *yes = static_cast<const T*>(b), *no = static_cast<const T*>(c);
  T* y = static_cast<T*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T p = yes[i], q = no[i];
    y[i] = condition[i] ? p : q;
  }
}

// ---- tables
// -------------------------------------------------------------------------------------------------------------

Block f32_block(ScalarOp op) {
  switch (op) {
    case ScalarOp::neg_:
      return loop_minus<float>;
    case ScalarOp::abs_:
      return loop_fabs<float>;
    case ScalarOp::sign_:
      return loop_sign<float>;
    case ScalarOp::floor_:
      return loop_floor<float>;
    case ScalarOp::ceil_:
      return loop_ceil<float>;
    case ScalarOp::round_:
      return vector_unary<Round>;
    case ScalarOp::exp_:
      return vector_unary<Exp>;
    case ScalarOp::expm1_:
      return vector_unary<Expm1>;
    case ScalarOp::log_:
      return vector_unary<Log>;
    case ScalarOp::log1p_:
      return vector_unary<Log1p>;
    case ScalarOp::sqrt_:
      return vector_unary<Sqrt>;
    case ScalarOp::rsqrt_:
      return vector_unary<Rsqrt>;
    case ScalarOp::sin_:
      return vector_sine<0>;
    case ScalarOp::cos_:
      return vector_sine<1>;
    case ScalarOp::tanh_:
      return vector_unary<Tanh>;
    case ScalarOp::erf_:
      return vector_unary<Erf>;
    case ScalarOp::logistic_:
      return vector_unary<Logistic>;
    case ScalarOp::gelu_:
      return vector_unary<Gelu>;
    case ScalarOp::gelu_grad_:
      return vector_gelu_grad;
    case ScalarOp::div_:
      return loop_div<float>;
    case ScalarOp::pow_:
      return float_pow;
    case ScalarOp::remainder_:
      return loop_remainder<float>;
    case ScalarOp::sigmoid_cross_entropy_:
      return vector_sigmoid_cross_entropy;
    case ScalarOp::sigmoid_cross_entropy_grad_:
      return vector_sigmoid_cross_entropy_grad;
    default:
      return nullptr;
  }
}

Block f64_block(ScalarOp op) {
  switch (op) {
    case ScalarOp::neg_:
      return loop_minus<double>;
    case ScalarOp::abs_:
      return loop_fabs<double>;
    case ScalarOp::sign_:
      return loop_sign<double>;
    case ScalarOp::floor_:
      return loop_floor<double>;
    case ScalarOp::ceil_:
      return loop_ceil<double>;
    case ScalarOp::round_:
      return double_round;
    case ScalarOp::exp_:
      return double_exp;
    case ScalarOp::expm1_:
      return double_expm1;
    case ScalarOp::log_:
      return double_log;
    case ScalarOp::log1p_:
      return double_log1p;
    case ScalarOp::sqrt_:
      return double_sqrt;
    case ScalarOp::rsqrt_:
      return double_rsqrt;
    case ScalarOp::sin_:
      return double_sin;
    case ScalarOp::cos_:
      return double_cos;
    case ScalarOp::tanh_:
      return double_tanh;
    case ScalarOp::erf_:
      return double_erf;
    case ScalarOp::logistic_:
      return double_logistic;
    case ScalarOp::div_:
      return loop_div<double>;
    case ScalarOp::pow_:
      return loop_pow<double>;
    case ScalarOp::remainder_:
      return loop_remainder<double>;
    default:
      return nullptr;
  }
}

template <typename T>
Block signed_block(ScalarOp op) {
  switch (op) {
    case ScalarOp::neg_:
      return loop_neg<T>;
    case ScalarOp::abs_:
      return loop_abs<T>;
    case ScalarOp::sign_:
      return loop_sign<T>;
    default:
      return nullptr;
  }
}

template <typename T>
Block arithmetic_block(ScalarOp op) {
  switch (op) {
    case ScalarOp::add_:
      return loop_add<T>;
    case ScalarOp::sub_:
      return loop_sub<T>;
    case ScalarOp::mul_:
      return loop_mul<T>;
    case ScalarOp::maximum_:
      return loop_maximum<T>;
    case ScalarOp::minimum_:
      return loop_minimum<T>;
    case ScalarOp::equal_:
      return loop_equal<T>;
    case ScalarOp::less_:
      return loop_less<T>;
    case ScalarOp::less_equal_:
      return loop_less_equal<T>;
    default:
      return nullptr;
  }
}

// Bitwise operations; T is the unsigned type of the width.
template <typename T>
Block bits_block(ScalarOp op, bool has_sign) {
  switch (op) {
    case ScalarOp::bit_and_:
      return loop_bit_and<T>;
    case ScalarOp::bit_or_:
      return loop_bit_or<T>;
    case ScalarOp::bit_xor_:
      return loop_bit_xor<T>;
    case ScalarOp::shift_left_:
      return loop_shift_left<T>;
    case ScalarOp::shift_right_logical_:
      return loop_shift_right<T>;
    case ScalarOp::shift_right_arithmetic_:
      return has_sign ? loop_shift_sign<T> : loop_shift_right<T>;
    default:
      return nullptr;
  }
}

Block bits_block(ScalarOp op, uint32_t dtype) {
  switch (dtype) {
    case HX_U8:
    case HX_I8:
      return bits_block<uint8_t>(op, dtype == HX_I8);
    case HX_U16:
    case HX_I16:
      return bits_block<uint16_t>(op, dtype == HX_I16);
    case HX_U32:
    case HX_I32:
      return bits_block<uint32_t>(op, dtype == HX_I32);
    case HX_U64:
    case HX_I64:
      return bits_block<uint64_t>(op, dtype == HX_I64);
    default:
      return nullptr;
  }
}

template <typename T>
Block question_block(ScalarOp op) {
  return op == ScalarOp::is_nan_ ? loop_is_nan<T> : op == ScalarOp::is_inf_ ? loop_is_inf<T> : nullptr;
}

Block bool_block(ScalarOp op) {
  switch (op) {
    case ScalarOp::logical_not_:
      return loop_not<uint8_t>;
    case ScalarOp::logical_and_:
      return loop_and<uint8_t>;
    case ScalarOp::logical_or_:
      return loop_or<uint8_t>;
    case ScalarOp::logical_xor_:
      return loop_xor<uint8_t>;
    case ScalarOp::equal_:
      return loop_equal<uint8_t>;
    default:
      return nullptr;
  }
}

// Operations that copy elements without interpreting them, by width.
Block moving_block(ScalarOp op, int64_t width) {
  if (op == ScalarOp::select_)
    return width == 1   ? loop_select<uint8_t>
           : width == 2 ? loop_select<uint16_t>
           : width == 4 ? loop_select<uint32_t>
                        : loop_select<uint64_t>;
  return width == 1   ? loop_copy<uint8_t>
         : width == 2 ? loop_copy<uint16_t>
         : width == 4 ? loop_copy<uint32_t>
                      : loop_copy<uint64_t>;
}

// Integer overflow wraps. Computed unsigned where the bits are the same.
Block integer_block(ScalarOp op, uint32_t dtype) {
  const bool wraps = op == ScalarOp::add_ || op == ScalarOp::sub_ || op == ScalarOp::mul_;
  switch (dtype) {
    case HX_U8:
      return arithmetic_block<uint8_t>(op);
    case HX_I32:
      if (op == ScalarOp::neg_) return loop_neg<uint32_t>;
      if (Block b = signed_block<int32_t>(op)) return b;
      return wraps ? arithmetic_block<uint32_t>(op) : arithmetic_block<int32_t>(op);
    case HX_I64:
      if (op == ScalarOp::neg_) return loop_neg<uint64_t>;
      if (Block b = signed_block<int64_t>(op)) return b;
      return wraps ? arithmetic_block<uint64_t>(op) : arithmetic_block<int64_t>(op);
    default:
      return nullptr;
  }
}

}  // namespace

Block find_block(ScalarOp op, uint32_t operand, uint32_t result, int64_t result_bytes) {
  if (op == ScalarOp::cast_) return find_cast(operand, result);
  if (op == ScalarOp::select_ || op == ScalarOp::stop_gradient_) return moving_block(op, result_bytes);
  if (Block b = find_trigonometric(op, operand)) return b;
  if (operand == HX_F32) {
    if (Block b = f32_block(op)) return b;
    if (Block b = question_block<float>(op)) return b;
    return arithmetic_block<float>(op);
  }
  if (operand == HX_F64) {
    if (Block b = f64_block(op)) return b;
    if (Block b = question_block<double>(op)) return b;
    return arithmetic_block<double>(op);
  }
  if (operand == HX_BOOL) return bool_block(op);
  if (Block b = bits_block(op, operand)) return b;
  return integer_block(op, operand);
}

}  // namespace harmonics::cpu::HM_ISA
