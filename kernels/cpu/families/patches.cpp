// im2col (patches) and its transpose col2im (unpatches).
#include "../family.hpp"

#include <cstdint>

namespace harmonics::cpu {
namespace {

// Planes of three axes; missing leading axes have size 1.
struct PatchContext {
  int64_t planes;  // N * C
  int64_t size[3], place[3], kernel[3], stride[3], low[3], dilation[3];
  float fill;
  uint32_t parts;  // divide planes x taps (patches) or planes (unpatches)
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include <cstring>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Places [begin, end) of an axis where element `tap` of the window is in range; `start`: that element at place 0.
struct Reach {
  int64_t start, begin, end;
};
HM_INLINE Reach reach(const PatchContext& c, int axis, int64_t tap) {
  const int64_t start = tap * c.dilation[axis] - c.low[axis], step = c.stride[axis];
  const int64_t begin = start >= 0 ? 0 : (-start + step - 1) / step,
                stop = start >= c.size[axis] ? 0 : (c.size[axis] - start - 1) / step + 1;
  const int64_t end = stop < c.place[axis] ? stop : c.place[axis];
  return {start, begin < end ? begin : end, end};
}

// Calls visit(place, element, n) for runs of n places along the last axis.
template <typename Visit>
HM_INLINE void for_runs(const PatchContext& c, int64_t tap, Visit visit) {
  const Reach last = reach(c, 2, tap % c.kernel[2]), middle = reach(c, 1, tap / c.kernel[2] % c.kernel[1]),
              first = reach(c, 0, tap / c.kernel[2] / c.kernel[1]);
  for (int64_t i = first.begin; i < first.end; ++i)
    for (int64_t j = middle.begin; j < middle.end; ++j)
      visit((i * c.place[1] + j) * c.place[2] + last.begin,
            ((first.start + i * c.stride[0]) * c.size[1] + middle.start + j * c.stride[1]) * c.size[2] + last.start +
                last.begin * c.stride[2],
            last.end - last.begin);
}

}  // namespace

void patches(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const PatchContext*>(context);
  const int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2], places = c.place[0] * c.place[1] * c.place[2],
                plane = c.size[0] * c.size[1] * c.size[2];
  const Range rows = share(c.planes * taps, c.parts, part);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const float* x = static_cast<const float*>(buffers[0]) + row / taps * plane;
    float* y = static_cast<float*>(buffers[1]) + row * places;
    for (int64_t i = 0; i < places; ++i) y[i] = c.fill;
    for_runs(c, row % taps, [&](int64_t place, int64_t element, int64_t n) {
      if (c.stride[2] == 1)
        std::memcpy(y + place, x + element, static_cast<size_t>(n) * sizeof(float));
      else
        for (int64_t i = 0; i < n; ++i) y[place + i] = x[element + i * c.stride[2]];
    });
  }
}

// Adds the taps in order, so that the sums do not depend on the parts.
void unpatches(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const PatchContext*>(context);
  const int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2], places = c.place[0] * c.place[1] * c.place[2],
                plane = c.size[0] * c.size[1] * c.size[2];
  const Range planes = share(c.planes, c.parts, part);
  for (int64_t p = planes.begin; p < planes.end; ++p) {
    float* y = static_cast<float*>(buffers[1]) + p * plane;
    std::memset(y, 0, static_cast<size_t>(plane) * sizeof(float));
    for (int64_t tap = 0; tap < taps; ++tap) {
      const float* x = static_cast<const float*>(buffers[0]) + (p * taps + tap) * places;
      for_runs(c, tap, [&](int64_t place, int64_t element, int64_t n) {
        if (c.stride[2] == 1) {
#pragma GCC ivdep
          for (int64_t i = 0; i < n; ++i) y[element + i] += x[place + i];
        } else {
          for (int64_t i = 0; i < n; ++i) y[element + i * c.stride[2]] += x[place + i];
        }
      });
    }
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(patches)
HM_VECTOR_CODE(unpatches)

namespace harmonics::cpu {
namespace {

bool plan_patches(const Site& site, hx_kernel& out) {
  const bool sums = site.op() == "unpatches";
  const hx_type &image = sums ? site.out() : site.in(0), &windows = sums ? site.in(0) : site.out();
  if (!site.all_f32() || image.rank < 3 || image.rank > 5) return false;
  auto c = std::make_unique<PatchContext>();
  const uint32_t skip = 5 - image.rank;
  const auto read = [&](const char* name, int64_t(&to)[3], int64_t otherwise) {
    const auto values = site.integers(name);
    for (uint32_t i = 0; i < 3; ++i) to[i] = i < skip || values.empty() ? otherwise : values[i - skip];
  };
  read("kernel", c->kernel, 1);
  read("strides", c->stride, 1);
  read("padding_low", c->low, 0);
  read("dilation", c->dilation, 1);
  for (uint32_t i = 0; i < 3; ++i) {
    c->size[i] = i < skip ? 1 : image.dims[i - skip + 2];
    c->place[i] = i < skip ? 1 : windows.dims[i - skip + 2];
  }
  c->planes = image.dims[0] * image.dims[1];
  c->fill = static_cast<float>(site.number("fill"));
  const double ns = 0.3 * static_cast<double>(count(windows));
  c->parts = parts_for(ns, sums ? c->planes : c->planes * c->kernel[0] * c->kernel[1] * c->kernel[2]);
  answer(out, std::move(c), sums ? chosen::unpatches() : chosen::patches(), sums ? "unpatches" : "patches");
  return true;
}

}  // namespace

HM_PLANS(patches, {"patches", plan_patches}, {"unpatches", plan_patches})

}  // namespace harmonics::cpu

#endif
