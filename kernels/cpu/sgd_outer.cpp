#include "sgd_outer.hpp"

#include "families.hpp"

namespace harmonics::cpu {

// w [m, n], a [..., m], b [..., n], lr -> w - lr a^T b, gradient?
bool plan_sgd_outer(const Site& site, hx_kernel& out) {
  const auto scale = site.scale_of(1);
  if (!scale || count(site.in(3)) != 1) return false;
  const int64_t m = site.in(0).dims[0], n = site.in(0).dims[1], k = count(site.in(1)) / m;
  const std::string gradient = site.text("input_gradient");
  if (site.outputs() != (gradient.empty() ? 1u : 2u)) return false;
  if (k == 1) {
    if (*scale != 0) return false;
    auto c = std::make_unique<OuterContext>();
    c->rows = m;
    c->columns = n;
    c->gradient = gradient.empty() ? OuterContext::none : gradient == "all" ? OuterContext::all : OuterContext::active;
    c->parts = parts_for(static_cast<double>(m * n) * 0.02, m);  // a low cost, since most rows are skipped
    answer(out, std::move(c), isa().sgd_outer, "outer product and sgd").in_place = 1;
    return true;
  }
  Product p{1, m, n, k, 1, m, n, 1, 1, 2, 4, 0, false, 0};
  p.half = site.allows_half();
  p.bf16 = site.allows_bf16();
  if (suits_bf16_product(p, 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k)))
    return declined("steps of products in bf16");
  p.scale = *scale;
  p.old = 0, p.rate = 3;
  if (!gradient.empty() || !answer_sparse_descent(p, out)) return false;
  out.in_place = 1;
  return true;
}

HM_PLANS(sgd_outer, {"sgd_outer", plan_sgd_outer})

}  // namespace harmonics::cpu
