// Plans im2col (patches), col2im (unpatches) and pooling of planes with one to three axes.
#include "families.hpp"

namespace harmonics::cuda {
namespace {

const char* kNoRank = "convolves over one to three axes";

// Reads the attributes. `image`, `windows`: types of the planes and of the results by window.
bool read(const Site& site, const hx_type& image, const hx_type& windows, WindowParameters& p) {
  if (image.rank < 3 || image.rank > 5 || windows.rank != image.rank) return declined(kNoRank);
  p.rank = image.rank - 2;
  const auto axis = [&](const char* name, uint32_t i, int64_t otherwise) {
    const auto values = site.integers(name);
    return static_cast<int32_t>(values.empty() ? otherwise : values[i]);
  };
  p.planes = static_cast<uint32_t>(image.dims[0] * image.dims[1]);
  p.plane = p.places = p.taps = 1;
  for (uint32_t i = 0; i < p.rank; ++i) {
    p.size[i] = static_cast<int32_t>(image.dims[i + 2]);
    p.place[i] = static_cast<int32_t>(windows.dims[i + 2]);
    p.kernel[i] = axis("kernel", i, 1);
    p.step[i] = axis("strides", i, 1);
    p.low[i] = axis("padding_low", i, 0);
    p.apart[i] = axis("dilation", i, 1);
    p.plane *= static_cast<uint32_t>(p.size[i]);
    p.places *= static_cast<uint32_t>(p.place[i]);
    p.taps *= static_cast<uint32_t>(p.kernel[i]);
  }
  p.count = static_cast<uint32_t>(count(site.out()));
  p.include_padding = site.flag("count_include_pad");
  return true;
}

bool answer_windows(const Site& site, Function function, const WindowParameters& p, const char* name, hx_kernel& out) {
  std::vector<Operand> all;
  for (uint32_t i = 0; i < site.inputs() + site.outputs(); ++i) all.push_back({i});
  Work work(site.machine());
  work.over(p.count, function, all, p);
  answer(out, std::move(work), name);
  return true;
}

}  // namespace

bool plan_reduce_window(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &y = site.out();
  const Function function = reduce_window_function(x.dtype);
  if (!function) return declined("reduces f32, f64, i32, i64 and u8");
  const std::string reduction = site.text("reduction");
  ReduceWindowParameters p{};
  p.count = static_cast<uint32_t>(count(y));
  p.rank = x.rank;
  p.joining = reduction == "sum" ? Joining::add : reduction == "max" ? Joining::largest : Joining::least;
  for (uint32_t a = 0; a < x.rank; ++a) {
    if (kernels::last_of_windows(site, a) >= kMostElements) return declined("counts elements in 31 bits");
    const auto of = [&](const char* name) { return static_cast<int32_t>(site.integers(name)[a]); };
    p.place[a] = static_cast<int32_t>(y.dims[a]);
    p.size[a] = static_cast<int32_t>(x.dims[a]);
    p.window[a] = of("window");
    p.step[a] = of("strides");
    p.low[a] = of("padding_low");
    p.apart[a] = of("dilation");
  }
  Work work(site.machine());
  work.over(p.count, function, {{0}, {1}}, p);
  answer(out, std::move(work), "windows");
  return true;
}

bool plan_patches(const Site& site, hx_kernel& out) {
  WindowParameters p{};
  if (!read(site, site.in(0), site.out(), p)) return false;
  if (!element_bits(site.in(0).dtype, site.number("fill"), p.fill))
    return declined("cannot round this number to the type");
  return answer_windows(site, patches_function(width(site.in(0).dtype)), p, "patches", out);
}

bool plan_unpatches(const Site& site, hx_kernel& out) {
  WindowParameters p{};
  const Function function = unpatches_function(site.in(0).dtype);
  if (!function) return declined("adds f32, f64, i32, i64 and u8");
  return read(site, site.out(), site.in(0), p) && answer_windows(site, function, p, "unpatches", out);
}

bool plan_pool(const Site& site, hx_kernel& out) {
  WindowParameters p{};
  if (site.op() == "max_pool_grad") {  // needs only indices, no windows
    const hx_type &indices = site.in(0), &dx = site.out();
    if (indices.dtype != HX_I32 || !is_f32(site.in(1)) || dx.rank < 3) return declined("pools f32");
    p.planes = static_cast<uint32_t>(dx.dims[0] * dx.dims[1]);
    p.plane = static_cast<uint32_t>(count(dx)) / p.planes;
    p.places = static_cast<uint32_t>(count(indices)) / p.planes;
    Work work(site.machine());
    work.launch(max_pool_grad_function(), {p.planes, 1, 1, kThreads}, {{0}, {1}, {2}}, p);
    answer(out, std::move(work), "max pool");
    return true;
  }
  const bool gradient = site.op() == "avg_pool_grad", largest = site.op() == "max_pool";
  if (!is_f32(site.in(0)) || !is_f32(site.out()) || (largest && site.out(1).dtype != HX_I32))
    return declined("pools f32");
  if (!read(site, gradient ? site.out() : site.in(0), gradient ? site.in(0) : site.out(), p)) return false;
  return answer_windows(site,
                        largest    ? max_pool_function()
                        : gradient ? avg_pool_grad_function()
                                   : avg_pool_function(),
                        p, largest ? "max pool" : "average pool", out);
}

HM_PLANS(window, {"reduce_window", plan_reduce_window}, {"patches", plan_patches}, {"unpatches", plan_unpatches},
         {"max_pool", plan_pool}, {"max_pool_grad", plan_pool}, {"avg_pool", plan_pool}, {"avg_pool_grad", plan_pool})

}  // namespace harmonics::cuda
