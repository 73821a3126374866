#include "window.hpp"

#include <string>

#include "families.hpp"

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

}  // namespace

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
  answer(out, std::move(c), isa().window, "windows", parts).workspace = bytes;
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
  answer(out, std::move(c), isa().window_grad, "windows gradient", parts);
  return true;
}

HM_PLANS(window, {"reduce_window", plan_window}, {"reduce_window_grad", plan_window_grad})

}  // namespace harmonics::cpu
