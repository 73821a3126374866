#include "pool.hpp"

#include "families.hpp"

namespace harmonics::cpu {
namespace {

// `x` and `y`: types of the large and the small side. False for more than two spatial axes.
bool fill(const Site& site, const hx_type& x, const hx_type& y, PoolContext& c) {
  if (x.rank < 3 || x.rank > 4 || y.rank != x.rank) return false;
  const uint32_t spatial = x.rank - 2, skip = 2 - spatial;
  const auto read = [&](const char* name, int64_t(&to)[2], int64_t otherwise) {
    const auto values = site.integers(name);
    to[0] = otherwise;
    for (uint32_t i = 0; i < spatial; ++i) to[skip + i] = values.empty() ? otherwise : values[i];
  };
  read("kernel", c.kernel, 1);
  read("strides", c.strides, 1);
  read("padding_low", c.low, 0);
  read("dilation", c.dilation, 1);
  if (skip) c.kernel[0] = c.strides[0] = c.dilation[0] = 1, c.low[0] = 0;
  c.planes = x.dims[0] * x.dims[1];
  c.height = spatial == 2 ? x.dims[2] : 1;
  c.width = x.dims[x.rank - 1];
  c.out_height = spatial == 2 ? y.dims[2] : 1;
  c.out_width = y.dims[y.rank - 1];
  c.include_padding = site.flag("count_include_pad");
  const double steps = static_cast<double>(count(y) * c.kernel[0] * c.kernel[1]);
  c.parts = parts_for(0.4 * steps + 0.1 * static_cast<double>(count(x)), c.planes);
  return true;
}

}  // namespace

bool plan_pool(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<PoolContext>();
  const IsaTable& t = isa();
  if (site.op() == "max_pool") {
    if (!is_f32(site.in(0)) || site.out(1).dtype != HX_I32 || !fill(site, site.in(0), site.out(), *c)) return false;
    answer(out, std::move(c), t.max_pool, "max pool");
  } else if (site.op() == "max_pool_grad") {
    if (site.in(0).dtype != HX_I32 || !is_f32(site.in(1)) || !fill(site, site.out(), site.in(1), *c)) return false;
    answer(out, std::move(c), t.max_pool_grad, "max pool");
  } else {
    const bool gradient = site.op() == "avg_pool_grad";
    if (!site.all_f32() || !fill(site, gradient ? site.out() : site.in(0), gradient ? site.in(0) : site.out(), *c))
      return false;
    answer(out, std::move(c), gradient ? t.avg_pool_grad : t.avg_pool, "average pool");
  }
  return true;
}

}  // namespace harmonics::cpu
