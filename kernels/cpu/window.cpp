#include "window.hpp"

#include <string>

#include "families.hpp"

namespace harmonics::cpu {
namespace {

bool is_supported(uint32_t dtype) {
  return dtype == HX_F32 || dtype == HX_F64 || dtype == HX_I32 || dtype == HX_I64 || dtype == HX_U8;
}

// The stages of the axes with windows, from the last to the first; `shape` becomes that of the result. False if there
// are too many.
bool plan_windows(const Site& site, std::vector<int64_t> shape, WindowContext& c) {
  const auto window = site.integers("window"), step = site.integers("strides"), low = site.integers("padding_low"),
             dilation = site.integers("dilation");
  for (size_t axis = shape.size(); axis-- > 0;) {
    const int64_t places = site.out().dims[axis];
    const bool is_last_chance = axis == 0 && c.stages == 0;  // without any window the kernel copies
    if (window[axis] == 1 && step[axis] == 1 && low[axis] == 0 && places == shape[axis] && !is_last_chance) continue;
    if (c.stages == HX_MAX_PHASES) return false;
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
  if (kind == std::end(kKinds) || !is_supported(x.dtype) || x.rank == 0) return false;
  auto c = std::make_unique<WindowContext>();
  c->reduction = kind->second;
  c->dtype = x.dtype;
  if (!plan_windows(site, dims(x), *c)) return false;
  int64_t elements = 0;
  std::vector<uint32_t> parts;
  for (uint32_t i = 0; i < c->stages; ++i) {
    WindowStage& s = c->stage[i];
    if (i > 0) s.from = 2, s.from_offset = c->stage[i - 1].to_offset;
    parts.push_back(s.parts);
    if (i + 1 == c->stages) continue;
    s.to = 2;
    s.to_offset = elements;
    elements += (s.outer * s.places * s.inner + 15) & ~int64_t{15};
  }
  const auto bytes = static_cast<uint64_t>(elements * width(x.dtype));
  answer(out, std::move(c), isa().window, "windows", parts).workspace = bytes;
  return true;
}

}  // namespace harmonics::cpu
