#include "attention.hpp"

#include <cmath>

#include "families.hpp"

namespace harmonics::cpu {

bool plan_attention(const Site& site, hx_kernel& out) {
  const hx_type &q = site.in(0), &k = site.in(1), &v = site.in(2);
  if (!site.all_f32() || q.rank != 4 || k.rank != 4 || v.rank != 4 || k.dims[1] == 0 || q.dims[1] % k.dims[1])
    return false;
  const bool gradient = site.inputs() == 6;
  auto c = std::make_unique<AttentionContext>();
  c->batch = q.dims[0];
  c->shared = k.dims[1];
  c->group = q.dims[1] / k.dims[1];
  c->queries = q.dims[2];
  c->width = q.dims[3];
  c->keys = k.dims[2];
  c->value_width = v.dims[3];
  c->causal = site.flag("causal");
  c->scale = static_cast<float>(site.number("scale", 1 / std::sqrt(static_cast<double>(c->width))));
  const double pairs =
      static_cast<double>(q.dims[0] * q.dims[1]) * static_cast<double>(c->queries * c->keys) * (c->causal ? 0.55 : 1);
  const double per_pair = gradient ? 2.0 + 0.1 * static_cast<double>(3 * c->width + 2 * c->value_width) / 2
                                   : 1.0 + 0.1 * static_cast<double>(c->width + c->value_width) / 2;
  const int64_t heads = c->batch * c->shared * (gradient ? 1 : c->group);
  c->query_chunks = gradient || heads >= 8 ? 1 : std::clamp<int64_t>(c->queries / 64, 1, 16 / heads);
  c->parts = parts_for(pairs * per_pair, heads * c->query_chunks);
  c->part_workspace = gradient ? (c->width + c->value_width) * kKeyBlock + 2 * kQueryBlock * kKeyBlock + c->queries
                               : c->width * kKeyBlock + kQueryBlock * kKeyBlock + 2 * c->queries;
  c->part_workspace = (c->part_workspace + 15) & ~int64_t{15};
  const uint64_t workspace = static_cast<uint64_t>(c->part_workspace) * c->parts * 4;
  answer(out, std::move(c), gradient ? isa().attention_grad : isa().attention, "attention").workspace = workspace;
  return true;
}

}  // namespace harmonics::cpu
