// Plans attention by cuDNN or by the tiled kernels. Other calls are inlined as products and chains.
#include "attention.hpp"

#include <algorithm>
#include <cmath>

#include "families.hpp"

namespace harmonics::cuda {
namespace {

bool read(const Site& site, Attention& a) {
  const hx_type &q = site.in(0), &k = site.in(1), &v = site.in(2);
  if (q.rank != 4 || k.rank != 4 || v.rank != 4 || site.out(1).dtype != HX_F32)
    return declined("needs four axes and an lse in f32");
  a.positions_first = site.flag("positions_first"), a.is_causal = site.flag("causal");
  const uint32_t heads = a.positions_first ? 2 : 1, positions = 3 - heads;
  a.batch = q.dims[0], a.heads = q.dims[heads], a.shared = k.dims[heads], a.queries = q.dims[positions],
  a.keys = k.dims[positions];
  a.width = q.dims[3], a.value_width = v.dims[3];
  a.scale = static_cast<float>(site.number("scale", 1 / std::sqrt(static_cast<double>(a.width))));
  return (!a.is_causal || a.queries <= a.keys) || declined("needs a visible key for every query");
}

}  // namespace

bool plan_attention(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  const bool mixed = site.in(1).dtype != dtype || site.in(2).dtype != dtype;
  if (kernels::has_more_than_attention(site) || mixed) return plan_sequence(site, out);
  const bool as_they_are = (dtype == HX_F16 || dtype == HX_BF16) && site.in(1).dtype == dtype &&
                           site.in(2).dtype == dtype && site.out().dtype == dtype;
  const bool fits_tiles = site.all_f32() && std::max(last(site.in(0)), last(site.in(2))) <= kWidestTiledHead;
  if (!as_they_are && !(site.all_f32() && site.may_round()))
    return fits_tiles ? plan_tiled_attention(site, out)
                      : declined("needs a 16-bit type, or f32 with heads of 64 numbers at most or rounding allowed");
  Attention a;
  if (!read(site, a)) return false;
  Work work(site.machine());
  if (as_they_are)
    a.dtype = dtype;
  else {
    // f16 has the mantissa of TF32; larger values saturate.
    Operand* const rounded[] = {&a.q, &a.k, &a.v};
    for (uint32_t i = 0; i < 3; ++i) {
      const auto n = static_cast<uint32_t>(count(site.in(i)));
      *rounded[i] = work.take_workspace(site, uint64_t{n} * 2);
      work.over(n, round_function(HX_F16), {{i}, *rounded[i]}, RoundParameters{n});
    }
    a.out = work.take_workspace(site, static_cast<uint64_t>(count(site.out())) * 2);
  }
  std::string why;
  auto step = dnn_step(site, work, a, why);
  if (!step) return fits_tiles ? plan_tiled_attention(site, out) : declined(why);
  work.add(std::move(step));
  if (!as_they_are) {
    const auto n = static_cast<uint32_t>(count(site.out()));
    work.over(n, widen_function(), {a.out, {3}}, RoundParameters{n});
  }
  answer(out, std::move(work), "cuDNN attention");
  return true;
}

HM_PLANS(attention, {"attention", plan_attention})

}  // namespace harmonics::cuda
