#include "attention.hpp"

#include <cmath>

#include "families.hpp"

namespace harmonics::cpu {

namespace {

HeadRows rows_of(const hx_type& x, bool positions_first) {
  const int64_t inner = x.dims[2] * x.dims[3], width = x.dims[3];
  return positions_first ? HeadRows{x.dims[1] * inner, width, inner} : HeadRows{x.dims[1] * inner, inner, width};
}

}  // namespace

bool plan_attention(const Site& site, hx_kernel& out) {
  const hx_type &q = site.in(0), &k = site.in(1), &v = site.in(2);
  const bool positions_first = site.flag("positions_first");
  const uint32_t head_axis = positions_first ? 2 : 1, position_axis = positions_first ? 1 : 2;
  if (!site.all_f32() || q.rank != 4 || k.rank != 4 || v.rank != 4) return false;
  if (k.dims[head_axis] == 0 || q.dims[head_axis] % k.dims[head_axis]) return false;
  const bool gradient = site.inputs() == 6;
  auto c = std::make_unique<AttentionContext>();
  c->batch = q.dims[0];
  c->shared = k.dims[head_axis];
  c->group = q.dims[head_axis] / c->shared;
  c->queries = q.dims[position_axis];
  c->width = q.dims[3];
  c->keys = k.dims[position_axis];
  c->value_width = v.dims[3];
  c->q = rows_of(q, positions_first);
  c->k = rows_of(k, positions_first);
  c->v = rows_of(v, positions_first);
  hx_type out_type = q;
  out_type.dims[3] = c->value_width;
  c->out = rows_of(out_type, positions_first);
  c->copies = positions_first;
  c->causal = site.flag("causal");
  c->scale = static_cast<float>(site.number("scale", 1 / std::sqrt(static_cast<double>(c->width))));
  if (c->scale < 0) return false;  // a negative scale would turn the maximum into the minimum
  const double pairs = static_cast<double>(c->batch * c->shared * c->group) *
                       static_cast<double>(c->queries * c->keys) * (c->causal ? 0.55 : 1);
  const double per_pair = gradient ? 2.0 + 0.1 * static_cast<double>(3 * c->width + 2 * c->value_width) / 2
                                   : 1.0 + 0.1 * static_cast<double>(c->width + c->value_width) / 2;
  const int64_t heads = c->batch * c->shared * (gradient ? 1 : c->group);
  c->query_chunks = gradient || heads >= 8 ? 1 : std::clamp<int64_t>(c->queries / 64, 1, 16 / heads);
  c->parts = parts_for(pairs * per_pair, heads * c->query_chunks);
  const int64_t widths = c->width + c->value_width;
  c->part_workspace = gradient ? (widths + 2 * kKeyBlock) * kQueryBlock + 3 * c->group * whole_blocks(c->queries)
                               : (c->width + kKeyBlock) * kQueryBlock + 2 * whole_blocks(c->queries);
  if (c->copies) c->part_workspace += kKeyBlock * (gradient ? widths + c->width : c->value_width);
  c->part_workspace = (c->part_workspace + 15) & ~int64_t{15};
  const uint64_t workspace = static_cast<uint64_t>(c->part_workspace) * c->parts * 4;
  answer(out, std::move(c), gradient ? isa().attention_grad : isa().attention, "attention").workspace = workspace;
  return true;
}

}  // namespace harmonics::cpu
