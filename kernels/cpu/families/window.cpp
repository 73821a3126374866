// Sums, maxima and minima of windows, one axis after the other, and the gradient of the extremes.
#include "../family.hpp"

#include <harmonics/abi.h>

#include "../reduce.hpp"

namespace harmonics::cpu {
namespace {

// [outer, size, inner] -> [outer, places, inner]: place p reduces the elements p * stride - low + k * dilation for k <
// window that are in range.
struct WindowStage {
  int64_t outer, size, inner, places;
  int64_t window, stride, low, dilation;
  uint32_t parts;
  uint32_t from, to;               // buffers
  int64_t from_offset, to_offset;  // in the workspace, elements
};

struct WindowContext {
  Reduction reduction;
  uint32_t dtype, stages;  // dtype: of the accumulation, f32 for 16-bit floats
  uint32_t half;           // HX_F16 or HX_BF16: a first phase widens x into the workspace, the last stage narrows; or 0
  int64_t count;           // of x
  uint32_t widen_parts;
  WindowStage stage[HX_MAX_PHASES];
};

// The gradient of a maximum or minimum: [planes, size ..., inner] with windows over the middle axes. A part owns planes
// and columns of `inner`.
struct WindowGradContext {
  uint32_t dtype, rank;
  int64_t planes, inner, plane, windows, taps;  // plane: elements of a plane per element of `inner`
  int64_t size[HX_MAX_RANK], places[HX_MAX_RANK], window[HX_MAX_RANK];
  int64_t stride[HX_MAX_RANK], low[HX_MAX_RANK], dilation[HX_MAX_RANK];
  uint32_t plane_parts, column_parts;
};
constexpr int64_t kWindowColumns = 256;  // columns of `inner` per pass

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <cstring>
#include <type_traits>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Integer overflow wraps.
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
// NaN replaces numbers and stays.
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

// Results are computed in blocks of this size, then stored, narrowed to the type `half` unless it is 0.
constexpr int64_t kBlock = 256;
template <typename T>
void store_block(const T* block, void* y, int64_t at, int64_t n, uint32_t half) {
  if constexpr (std::is_same_v<T, float>)
    if (half) return find_cast(HX_F32, half)(block, nullptr, nullptr, static_cast<uint16_t*>(y) + at, n);
  std::memcpy(static_cast<T*>(y) + at, block, static_cast<size_t>(n) * sizeof(T));
}
template <typename T>
HM_INLINE T smaller(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
HM_INLINE T larger(T a, T b) {
  return a > b ? a : b;
}

// Reduces whole rows of `inner` elements.
template <typename Rule, typename T>
void join_rows(const WindowStage& s, const T* x, void* y, uint32_t half, Range rows) {
  T block[kBlock];
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const int64_t start = r % s.places * s.stride - s.low;
    const T* plane = x + r / s.places * s.size * s.inner;
    const int64_t begin = up(-start, s.dilation), end = smaller(up(s.size - start, s.dilation), s.window);
    for (int64_t c = 0; c < s.inner; c += kBlock) {
      const int64_t n = smaller(kBlock, s.inner - c);
      for (int64_t i = 0; i < n; ++i) block[i] = Rule::kStart;
      for (int64_t k = begin; k < end; ++k) {
        const T* from = plane + (start + k * s.dilation) * s.inner + c;
        for (int64_t i = 0; i < n; ++i) block[i] = Rule::join(block[i], from[i]);
      }
      store_block(block, y, r * s.inner + c, n, half);
    }
  }
}

// Reduces along contiguous rows: tap by tap, for all windows of a block.
template <typename Rule, typename T>
void slide(const WindowStage& s, const T* x, void* y, uint32_t half, Range rows) {
  T block[kBlock];
  for (int64_t r = rows.begin; r < rows.end; ++r)
    for (int64_t first = 0; first < s.places; first += kBlock) {
      const int64_t n = smaller(kBlock, s.places - first);
      for (int64_t p = 0; p < n; ++p) block[p] = Rule::kStart;
      for (int64_t k = 0; k < s.window; ++k) {
        const int64_t start = first * s.stride + k * s.dilation - s.low;  // element of the block's first place
        const int64_t begin = up(-start, s.stride), end = smaller(up(s.size - start, s.stride), n);
        const T* from = x + r * s.size + start;
        if (s.stride == 1)
          for (int64_t p = begin; p < end; ++p) block[p] = Rule::join(block[p], from[p]);
        else
          for (int64_t p = begin; p < end; ++p) block[p] = Rule::join(block[p], from[p * s.stride]);
      }
      store_block(block, y, r * s.places + first, n, half);
    }
}

template <typename Rule, typename T>
void run_stage(const WindowStage& s, void* const* buffers, uint32_t half, uint32_t part) {
  const T* x = static_cast<const T*>(buffers[s.from]) + s.from_offset;
  void* y = half ? buffers[s.to] : static_cast<T*>(buffers[s.to]) + s.to_offset;  // half: only for the final result
  if (s.inner == 1)
    slide<Rule>(s, x, y, half, share(s.outer, s.parts, part));
  else
    join_rows<Rule>(s, x, y, half, share(s.outer * s.places, s.parts, part));
}

template <typename T>
void run_type(const WindowContext& c, void* const* buffers, uint32_t stage, uint32_t part) {
  const WindowStage& s = c.stage[stage];
  const uint32_t half = stage + 1 == c.stages ? c.half : 0;
  if (c.reduction == Reduction::sum) return run_stage<Sum<T>, T>(s, buffers, half, part);
  if (c.reduction == Reduction::maximum) return run_stage<Maximum<T>, T>(s, buffers, half, part);
  run_stage<Minimum<T>, T>(s, buffers, half, part);
}

// Offset in the plane of a window's first element, which may be padding, and the taps within the plane along its first
// `axes` axes.
struct Taps {
  int64_t begin[HX_MAX_RANK], end[HX_MAX_RANK], step[HX_MAX_RANK];
  int64_t first = 0;
  uint32_t axes;
  bool any = true;

  Taps(const WindowGradContext& c, int64_t window, uint32_t axes) : axes(axes) {
    int64_t wide = 1;
    for (uint32_t a = c.rank; a-- > 0;) {
      const int64_t start = window % c.places[a] * c.stride[a] - c.low[a];
      window /= c.places[a];
      begin[a] = up(-start, c.dilation[a]);
      end[a] = smaller(up(c.size[a] - start, c.dilation[a]), c.window[a]);
      any = any && (a >= axes || begin[a] < end[a]);
      step[a] = c.dilation[a] * wide;
      first += start * wide;
      wide *= c.size[a];
    }
  }
};
template <typename Visit>
HM_INLINE void for_each_tap(const Taps& taps, Visit visit) {
  if (!taps.any) return;
  int64_t at[HX_MAX_RANK] = {}, place = taps.first;
  for (uint32_t a = 0; a < taps.axes; ++a) place += (at[a] = taps.begin[a]) * taps.step[a];
  for (;;) {
    visit(place);
    uint32_t axis = taps.axes;
    while (axis-- > 0) {
      place += taps.step[axis];
      if (++at[axis] < taps.end[axis]) break;
      place -= (at[axis] - taps.begin[axis]) * taps.step[axis];
      at[axis] = taps.begin[axis];
    }
    if (axis == UINT32_MAX) return;
  }
}

// Spreads gradients along contiguous rows: tap by tap, for all windows of a block. An element receives its shares in
// the order of the windows, as in spread_windows.
template <typename T>
void spread_rows(const WindowGradContext& c, const T* x, const T* y, const T* dy, T* dx) {
  const uint32_t last = c.rank - 1;
  const int64_t places = c.places[last], stride = c.stride[last], dilation = c.dilation[last];
  T ties[kBlock];
  for (int64_t w = 0; w < c.windows; w += places) {
    const Taps taps(c, w, last);
    for (int64_t block = 0; block < places; block += kBlock) {
      const int64_t n = smaller(kBlock, places - block);
      const T* const best = y + w + block;
      // Calls visit(place, begin, end) for tap k of the windows [begin, end) of the block where it is in range.
      const auto tap = [&](int64_t k, auto visit) __attribute__((always_inline)) {
        const int64_t ahead = block * stride + k * dilation, start = ahead - c.low[last];
        const int64_t begin = up(-start, stride), end = smaller(up(c.size[last] - start, stride), n);
        for_each_tap(taps, [&](int64_t place) { visit(place + ahead, begin, end); });
      };
      std::memset(ties, 0, sizeof ties);
      for (int64_t k = 0; k < c.window[last]; ++k)
        tap(k, [&](int64_t place, int64_t begin, int64_t end) {
          const T* const here = x + place;
          if (stride == 1)
            for (int64_t p = begin; p < end; ++p) ties[p] += here[p] == best[p] ? T(1) : T(0);
          else
            for (int64_t p = begin; p < end; ++p) ties[p] += here[p * stride] == best[p] ? T(1) : T(0);
        });
      for (int64_t p = 0; p < n; ++p) ties[p] = dy[w + block + p] / larger(ties[p], T(1));
      for (int64_t k = c.window[last]; k-- > 0;)  // descending: the first window covers an element by its last tap
        tap(k, [&](int64_t place, int64_t begin, int64_t end) {
          const T* const here = x + place;
          T* const to = dx + place;
          if (stride == 1) {
#pragma GCC ivdep
            for (int64_t p = begin; p < end; ++p) to[p] += here[p] == best[p] ? ties[p] : T(0);
          } else {
#pragma GCC ivdep
            for (int64_t p = begin; p < end; ++p) to[p * stride] += here[p * stride] == best[p] ? ties[p] : T(0);
          }
        });
    }
  }
}

// Distributes dy of each window in equal shares to the elements equal to its maximum or minimum.
template <typename T>
void spread_windows(const WindowGradContext& c, void* const* buffers, uint32_t part) {
  const Range planes = share(c.planes, c.plane_parts, part / c.column_parts),
              columns = share(c.inner, c.column_parts, part % c.column_parts);
  T ties[kWindowColumns];
  for (int64_t n = planes.begin; n < planes.end; ++n)
    for (int64_t first = columns.begin; first < columns.end; first += kWindowColumns) {
      const int64_t wide = smaller(kWindowColumns, columns.end - first), from = n * c.plane * c.inner + first;
      const T *x = static_cast<const T*>(buffers[0]) + from,
              *y = static_cast<const T*>(buffers[1]) + n * c.windows * c.inner + first,
              *dy = static_cast<const T*>(buffers[2]) + n * c.windows * c.inner + first;
      T* dx = static_cast<T*>(buffers[3]) + from;
      for (int64_t i = 0; i < c.plane; ++i) std::memset(dx + i * c.inner, 0, static_cast<size_t>(wide) * sizeof(T));
      if (c.inner == 1 && c.rank > 0) {
        spread_rows(c, x, y, dy, dx);
        continue;
      }
      for (int64_t w = 0; w < c.windows; ++w, y += c.inner, dy += c.inner) {
        const Taps taps(c, w, c.rank);
        std::memset(ties, 0, static_cast<size_t>(wide) * sizeof(T));
        for_each_tap(taps, [&](int64_t at) {
          const T* here = x + at * c.inner;
          for (int64_t i = 0; i < wide; ++i) ties[i] += here[i] == y[i] ? T(1) : T(0);
        });
        for (int64_t i = 0; i < wide; ++i) ties[i] = dy[i] / larger(ties[i], T(1));
        for_each_tap(taps, [&](int64_t at) {
          const T* here = x + at * c.inner;
          T* to = dx + at * c.inner;
          for (int64_t i = 0; i < wide; ++i) to[i] += here[i] == y[i] ? ties[i] : T(0);
        });
      }
    }
}

}  // namespace

void window(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const WindowContext*>(context);
  if (c.half) {
    if (phase == 0) {
      const Range own = share(c.count, c.widen_parts, part);
      return find_cast(c.half, HX_F32)(static_cast<const uint16_t*>(buffers[0]) + own.begin, nullptr, nullptr,
                                       static_cast<float*>(buffers[2]) + own.begin, own.end - own.begin);
    }
    --phase;
  }
  switch (c.dtype) {
    case HX_F32:
      return run_type<float>(c, buffers, phase, part);
    case HX_F64:
      return run_type<double>(c, buffers, phase, part);
    case HX_I8:
      return run_type<int8_t>(c, buffers, phase, part);
    case HX_I16:
      return run_type<int16_t>(c, buffers, phase, part);
    case HX_U16:
      return run_type<uint16_t>(c, buffers, phase, part);
    case HX_I32:
      return run_type<int32_t>(c, buffers, phase, part);
    case HX_U32:
      return run_type<uint32_t>(c, buffers, phase, part);
    case HX_I64:
      return run_type<int64_t>(c, buffers, phase, part);
    case HX_U64:
      return run_type<uint64_t>(c, buffers, phase, part);
    default:
      return run_type<uint8_t>(c, buffers, phase, part);
  }
}

void window_grad(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const WindowGradContext*>(context);
  if (c.dtype == HX_F64) return spread_windows<double>(c, buffers, part);
  spread_windows<float>(c, buffers, part);
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include <string>

HM_VECTOR_CODE(window)
HM_VECTOR_CODE(window_grad)

namespace harmonics::cpu {
namespace {

// Plans a stage for each axis with windows, from the last to the first. Returns false if there are too many stages.
bool plan_windows(const Site& site, std::vector<int64_t> shape, WindowContext& c) {
  const auto window = site.integers("window"), step = site.integers("strides"), low = site.integers("padding_low"),
             dilation = site.integers("dilation");
  for (size_t axis = shape.size(); axis-- > 0;) {
    const int64_t places = site.out().dims[axis];
    const bool is_last_chance = axis == 0 && c.stages == 0;  // without any window the kernel copies
    if (window[axis] == 1 && step[axis] == 1 && low[axis] == 0 && places == shape[axis] && !is_last_chance) continue;
    if (c.stages + (c.half ? 1 : 0) == HX_MAX_PHASES) return false;
    WindowStage& s = c.stage[c.stages++];
    s = {1, shape[axis], 1, places, window[axis], step[axis], low[axis], dilation[axis], 1, 0, 1, 0, 0};
    for (size_t i = 0; i < axis; ++i) s.outer *= shape[i];
    for (size_t i = axis + 1; i < shape.size(); ++i) s.inner *= shape[i];
    shape[axis] = places;
    const int64_t rows = s.inner == 1 ? s.outer : s.outer * places;
    s.parts = parts_for(0.1 * static_cast<double>(s.outer * places * s.inner * (s.window + 1)), rows);
  }
  return true;
}

bool plan_window(const Site& site, hx_kernel& out) {
  constexpr std::pair<std::string_view, Reduction> kKinds[] = {
      {"sum", Reduction::sum}, {"max", Reduction::maximum}, {"min", Reduction::minimum}};
  const std::string name = site.text("reduction");
  const auto* kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const auto& k) { return k.first == name; });
  const hx_type& x = site.in(0);
  if (kind == std::end(kKinds) || x.dtype == HX_BOOL || x.rank == 0) return false;
  auto c = std::make_unique<WindowContext>();
  c->reduction = kind->second;
  c->half = kernels::is_half(x.dtype) ? x.dtype : 0;
  c->dtype = c->half ? uint32_t{HX_F32} : x.dtype;
  c->count = count(x);
  if (!plan_windows(site, dims(x), *c)) return false;
  const auto rounded_up = [](int64_t n) { return (n + 15) & ~int64_t{15}; };
  int64_t elements = 0;
  std::vector<uint32_t> parts;
  if (c->half) {
    parts.push_back(c->widen_parts = parts_for(0.1 * static_cast<double>(c->count), c->count));
    c->stage[0].from = 2;
    elements = rounded_up(c->count);
  }
  for (uint32_t i = 0; i < c->stages; ++i) {
    WindowStage& s = c->stage[i];
    if (i > 0) s.from = 2, s.from_offset = c->stage[i - 1].to_offset;
    parts.push_back(s.parts);
    if (i + 1 == c->stages) continue;
    s.to = 2;
    s.to_offset = elements;
    elements += rounded_up(s.outer * s.places * s.inner);
  }
  const auto bytes = static_cast<uint64_t>(elements * width(c->dtype));
  answer(out, std::move(c), chosen::window(), "windows", parts).workspace = bytes;
  return true;
}

// Axes without windows are planes before the first axis with one, and columns after the last.
bool plan_window_grad(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &y = site.in(1);
  if ((x.dtype != HX_F32 && x.dtype != HX_F64) || x.rank == 0) return false;
  const auto window = site.integers("window"), step = site.integers("strides"), low = site.integers("padding_low"),
             dilation = site.integers("dilation");
  const auto is_plain = [&](uint32_t a) {
    return window[a] == 1 && step[a] == 1 && low[a] == 0 && y.dims[a] == x.dims[a];
  };
  auto c = std::make_unique<WindowGradContext>();
  uint32_t first = 0, end = x.rank;
  while (first < end && is_plain(first)) ++first;
  while (end > first && is_plain(end - 1)) --end;
  c->dtype = x.dtype;
  c->rank = end - first;
  c->planes = c->inner = c->plane = c->windows = c->taps = 1;
  for (uint32_t a = 0; a < x.rank; ++a) {
    if (a < first) c->planes *= x.dims[a];
    if (a >= end) c->inner *= x.dims[a];
    if (a < first || a >= end) continue;
    const uint32_t i = a - first;
    c->size[i] = x.dims[a];
    c->places[i] = y.dims[a];
    c->window[i] = window[a];
    c->stride[i] = step[a];
    c->low[i] = low[a];
    c->dilation[i] = dilation[a];
    c->plane *= x.dims[a];
    c->windows *= y.dims[a];
    c->taps *= window[a];
  }
  const double ns = static_cast<double>(c->planes * c->windows) *
                    (10 + static_cast<double>(c->taps) * (1 + 0.2 * static_cast<double>(c->inner)));
  c->plane_parts = parts_for(ns, c->planes);
  c->column_parts = c->planes > 1 ? 1 : parts_for(ns, (c->inner + 15) / 16);
  const std::vector<uint32_t> parts = {c->plane_parts * c->column_parts};
  answer(out, std::move(c), chosen::window_grad(), "windows gradient", parts);
  return true;
}

}  // namespace

HM_PLANS(window, {"reduce_window", plan_window}, {"reduce_window_grad", plan_window_grad})

}  // namespace harmonics::cpu

#endif
