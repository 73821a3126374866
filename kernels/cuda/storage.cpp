// Plans quantize and dequantize.
#include "families.hpp"

namespace harmonics::cuda {
namespace {

bool answer_channels(const Site& site, Function function, const char* name, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const bool one = site.in(1).rank == 0;
  const auto axis = static_cast<size_t>(site.integer("axis"));
  const auto n = static_cast<uint32_t>(count(x));
  Work work(site.machine());
  work.over(n, function, {{0}, {1}, {2}, {3}},
            ChannelsParameters{n, one ? 1 : static_cast<uint32_t>(x.dims[axis]),
                               one ? n : static_cast<uint32_t>(strides(x)[axis])});
  answer(out, std::move(work), name);
  return true;
}

}  // namespace

bool plan_quantize(const Site& site, hx_kernel& out) {
  const Function function = quantize_function(site.out().dtype);
  if (!function || !is_f32(site.in(0)) || !is_f32(site.in(1)) || site.in(2).dtype != site.out().dtype)
    return declined("quantizes f32 to whole numbers of 8 and 16 bits");
  return answer_channels(site, function, "quantize", out);
}

bool plan_dequantize(const Site& site, hx_kernel& out) {
  const Function function = dequantize_function(site.in(0).dtype);
  if (!function || !is_f32(site.in(1)) || !is_f32(site.out()) || site.in(2).dtype != site.in(0).dtype)
    return declined("dequantizes whole numbers to f32");
  return answer_channels(site, function, "dequantize", out);
}

HM_PLANS(storage, {"quantize", plan_quantize}, {"dequantize", plan_dequantize})

}  // namespace harmonics::cuda
