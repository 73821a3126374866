#include "../window.hpp"

#include <cstring>
#include <type_traits>

#include "kernels.hpp"
#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Integers wrap.
template <typename T>
struct Sum {
  static constexpr T kStart = 0;
  HM_INLINE static T join(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Bits = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Bits>(static_cast<Bits>(a) + static_cast<Bits>(b)));
    } else {
      return a + b;
    }
  }
};
template <typename T>
constexpr T least() {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(-__builtin_inf());
  return std::is_unsigned_v<T> ? T(0) : static_cast<T>(uint64_t{1} << (8 * sizeof(T) - 1));
}
template <typename T>
constexpr T most() {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(__builtin_inf());
  else
    return static_cast<T>(~least<T>());
}
// NaN wins and stays.
template <typename T>
struct Maximum {
  static constexpr T kStart = least<T>();
  HM_INLINE static T join(T a, T b) { return a != a || a >= b ? a : b; }
};
template <typename T>
struct Minimum {
  static constexpr T kStart = most<T>();
  HM_INLINE static T join(T a, T b) { return a != a || a <= b ? a : b; }
};

HM_INLINE int64_t up(int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; }

// Whole rows of `inner` elements are joined.
template <typename Rule, typename T>
void join_rows(const WindowStage& s, const T* x, T* y, Range rows) {
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t start = r % s.places * s.stride - s.low;
    const T* plane = x + r / s.places * s.size * s.inner;
    T* to = y + r * s.inner;
    const int64_t begin = up(-start, s.dilation), stop = up(s.size - start, s.dilation);
    const int64_t end = stop < s.window ? stop : s.window;
    if (begin >= end) {
      for (int64_t i = 0; i < s.inner; ++i) to[i] = Rule::kStart;
      continue;
    }
    std::memcpy(to, plane + (start + begin * s.dilation) * s.inner, static_cast<size_t>(s.inner) * sizeof(T));
    for (int64_t k = begin + 1; k < end; ++k) {
      const T* from = plane + (start + k * s.dilation) * s.inner;
#pragma GCC ivdep
      for (int64_t i = 0; i < s.inner; ++i) to[i] = Rule::join(to[i], from[i]);
    }
  }
}

// Along contiguous rows: one element of all windows after the other.
template <typename Rule, typename T>
void slide(const WindowStage& s, const T* x, T* y, Range rows) {
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    T* to = y + r * s.places;
    for (int64_t p = 0; p < s.places; ++p) to[p] = Rule::kStart;
    for (int64_t k = 0; k < s.window; ++k) {
      const int64_t start = k * s.dilation - s.low;  // of place 0
      const int64_t begin = up(-start, s.stride), stop = up(s.size - start, s.stride);
      const int64_t end = stop < s.places ? stop : s.places;
      const T* from = x + r * s.size + start;
      if (s.stride == 1) {
#pragma GCC ivdep
        for (int64_t p = begin; p < end; ++p) to[p] = Rule::join(to[p], from[p]);
      } else {
#pragma GCC ivdep
        for (int64_t p = begin; p < end; ++p) to[p] = Rule::join(to[p], from[p * s.stride]);
      }
    }
  }
}

template <typename Rule, typename T>
void run_stage(const WindowStage& s, void* const* buffers, uint32_t part) {
  const T* x = static_cast<const T*>(buffers[s.from]) + s.from_offset;
  T* y = static_cast<T*>(buffers[s.to]) + s.to_offset;
  if (s.inner == 1)
    slide<Rule>(s, x, y, share(s.outer, s.parts, part));
  else
    join_rows<Rule>(s, x, y, share(s.outer * s.places, s.parts, part));
}

template <typename T>
void run_type(const WindowContext& c, void* const* buffers, uint32_t phase, uint32_t part) {
  if (c.reduction == Reduction::sum) return run_stage<Sum<T>, T>(c.stage[phase], buffers, part);
  if (c.reduction == Reduction::maximum) return run_stage<Maximum<T>, T>(c.stage[phase], buffers, part);
  run_stage<Minimum<T>, T>(c.stage[phase], buffers, part);
}

}  // namespace

void window(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const WindowContext*>(context);
  switch (c.dtype) {
    case HX_F32:
      return run_type<float>(c, buffers, phase, part);
    case HX_F64:
      return run_type<double>(c, buffers, phase, part);
    case HX_I32:
      return run_type<int32_t>(c, buffers, phase, part);
    case HX_I64:
      return run_type<int64_t>(c, buffers, phase, part);
    default:
      return run_type<uint8_t>(c, buffers, phase, part);
  }
}

}  // namespace harmonics::cpu::HM_ISA
