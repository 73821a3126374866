// Attention and its gradient, and the choice between their kernels.
#include "../family.hpp"

#ifdef HM_ISA

#include "attention_kernels.hpp"

#else

#include <unistd.h>

#include <cmath>

#include "../cached_attention.hpp"
#include "../documents.hpp"

namespace harmonics::cpu {

namespace {

// Returns the number of k-loop steps per prefetched cache line of the next item, whose rows take `floats`; 0 (no
// prefetch) if the current and the next item exceed half of the L2 cache. Products take at least two steps for each
// (query, key) pair and cache line of a row.
int64_t steps_per_line(int64_t floats, double pairs, int64_t queries, int64_t keys) {
  constexpr int64_t kLeastCache = 1 << 20;
  static const int64_t cache = std::max<int64_t>(kLeastCache, ::sysconf(_SC_LEVEL2_CACHE_SIZE));
  if (4 * floats * static_cast<int64_t>(sizeof(float)) > cache) return 0;
  return std::clamp<int64_t>(static_cast<int64_t>(pairs) / (32 * (queries + keys)), 1, 16);
}

HeadRows rows_of(const hx_type& x, bool positions_first) {
  const int64_t inner = x.dims[2] * x.dims[3], width = x.dims[3];
  return positions_first ? HeadRows{x.dims[1] * inner, width, inner} : HeadRows{x.dims[1] * inner, inner, width};
}

// Accepts a mask or bias of shape [T, S] or [B, 1 or H, T, S].
bool take_rows(const Site& site, uint32_t buffer, const SequenceAttention& c, ScoreRows& rows) {
  const hx_type& x = site.in(buffer);
  const int64_t table = c.queries * c.keys;
  if (x.rank == 2) {
    rows = {buffer, 0, 0, c.keys};
  } else if (x.rank == 4) {
    rows = {buffer, x.dims[1] * table, x.dims[1] == 1 ? 0 : table, c.keys};
  } else {
    return false;
  }
  return true;
}

bool take_operand(const Site& site, const std::string& name, uint32_t buffer, SequenceAttention& c) {
  const hx_type& given = site.in(buffer);
  if (name == "mask") return given.dtype == HX_BOOL && take_rows(site, buffer, c, c.mask);
  if (name == "bias") return is_f32(given) && take_rows(site, buffer, c, c.bias);
  if (name == "lengths") c.lengths = buffer;
  if (name == "sinks") c.sinks = buffer;
  return name == "lengths" ? given.dtype == HX_I32 : name == "sinks" && is_f32(given);
}

// Accepts page pools [P, R, Hkv, D] or [P, Hkv, R, D] as k and v, and page tables [B, N].
bool take_pages(const Site& site, uint32_t buffer, uint32_t positions, SequenceAttention& c) {
  const hx_type &table = site.in(buffer), &k = site.in(1), &v = site.in(2);
  if (table.dtype != HX_I32 || table.rank != 2 || table.dims[0] != c.batch || k.dims[0] != v.dims[0]) return false;
  c.pages = {buffer, table.dims[1], k.dims[positions], k.dims[0]};
  c.keys = c.pages.entries * c.pages.rows;
  return true;
}

}  // namespace

int64_t wanted_parts(double nanoseconds) { return std::max(kUsualParts, parts_for(nanoseconds, kMostParts)); }

bool take_sequence(const Site& site, uint32_t fixed, SequenceAttention& c, std::vector<std::string>& names) {
  const hx_type &q = site.in(0), &k = site.in(1), &v = site.in(2);
  const bool first = site.flag("positions_first");
  const uint32_t heads = first ? 2 : 1, positions = first ? 1 : 2;
  if (q.rank != 4 || k.rank != 4 || v.rank != 4 || k.dims[heads] == 0 || q.dims[heads] % k.dims[heads]) return false;
  c.batch = q.dims[0];
  c.shared = k.dims[heads];
  c.group = q.dims[heads] / c.shared;
  c.queries = q.dims[positions];
  c.keys = k.dims[positions];
  c.width = q.dims[3];
  c.value_width = v.dims[3];
  c.q = rows_of(q, first);
  c.k = rows_of(k, first);
  c.v = rows_of(v, first);
  hx_type out_type = q;
  out_type.dims[3] = c.value_width;
  c.out = rows_of(out_type, first);
  c.causal = site.flag("causal");
  c.window = static_cast<int64_t>(site.number("window"));
  c.scale = static_cast<float>(site.number("scale", 1 / std::sqrt(static_cast<double>(c.width))));
  c.softcap = static_cast<float>(site.number("softcap"));
  if (c.scale < 0 || c.window < 0 || c.softcap < 0) return false;
  c.lengths = c.sinks = c.mask.buffer = c.bias.buffer = c.pages.buffer = kNoBuffer;
  const std::string list = site.text("operands");
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  if (fixed + names.size() != site.inputs()) return false;
  for (uint32_t i = 0; i < names.size(); ++i)  // pages first: they set c.keys, the row length of masks
    if (names[i] == "pages" && (fixed > 3 || !take_pages(site, fixed + i, positions, c))) return false;
  for (uint32_t i = 0; i < names.size(); ++i)
    if (names[i] != "pages" && !take_operand(site, names[i], fixed + i, c)) return false;
  return true;
}

bool plan_attention(const Site& site, hx_kernel& out) {
  for (const char* own : {"documents", "documents,sinks", "sinks,documents"})
    if (site.text("operands") == own) return plan_documents(site, out);
  const bool gradient = site.op() == "attention_grad";
  const bool stored = site.inputs() == 3 && (!is_f32(site.in(1)) || !is_f32(site.in(2)));
  if (kernels::has_more_than_attention(site) || stored)
    return gradient ? plan_sequence_gradient(site, out) : plan_cached_attention(site, out);
  if (site.inputs() != (gradient ? 6 : 3)) return false;
  const hx_type &q = site.in(0), &k = site.in(1), &v = site.in(2);
  const bool positions_first = site.flag("positions_first");
  const uint32_t head_axis = positions_first ? 2 : 1, position_axis = positions_first ? 1 : 2;
  if (!site.all_f32() || q.rank != 4 || k.rank != 4 || v.rank != 4) return false;
  if (k.dims[head_axis] == 0 || q.dims[head_axis] % k.dims[head_axis]) return false;
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
  constexpr int64_t kMostDense = 384 * 1024;                                      // floats that stay in the L2 cache
  const auto collide = [](const HeadRows& rows) { return rows.row % 256 == 0; };  // rows map to few cache sets
  const int64_t dense = c->group * c->queries * (2 * c->width + c->value_width);
  c->dense_rows = positions_first && (collide(c->q) || collide(c->k) || collide(c->out)) && dense <= kMostDense;
  c->causal = site.flag("causal");
  c->scale = static_cast<float>(site.number("scale", 1 / std::sqrt(static_cast<double>(c->width))));
  if (c->scale < 0) return false;  // a negative scale would turn the maximum into the minimum
  const double pairs = static_cast<double>(c->batch * c->shared * c->group) *
                       static_cast<double>(c->queries * c->keys) * (c->causal ? 0.55 : 1);
  const double per_pair = gradient ? 2.0 + 0.1 * static_cast<double>(3 * c->width + 2 * c->value_width) / 2
                                   : 1.0 + 0.1 * static_cast<double>(c->width + c->value_width) / 2;
  const int64_t heads = c->batch * c->shared * (gradient ? 1 : c->group);
  const int64_t wanted = wanted_parts(pairs * per_pair);
  c->query_chunks = gradient || 2 * heads >= wanted ? 1 : std::clamp<int64_t>(c->queries / 64, 1, wanted / heads);
  c->parts = parts_for(pairs * per_pair, heads * c->query_chunks);
  const int64_t widths = c->width + c->value_width;
  if (gradient) {
    c->part_workspace = ((1 + c->copies) * widths + 2 * kGradientBlock) * kGradientBlock +
                        4 * c->group * whole_blocks(c->queries) +
                        (c->dense_rows ? dense + kGradientBlock * c->width : 0);
  } else {
    c->part_workspace = (c->width + kKeyBlock) * kQueryBlock + 2 * whole_blocks(c->queries) +
                        (c->copies ? kKeyBlock * c->value_width : 0);
  }
  c->part_workspace = (c->part_workspace + 15) & ~int64_t{15};
  c->ahead_every =
      steps_per_line((gradient ? 2 : 1) * (c->keys + c->queries) * widths,
                     static_cast<double>(c->queries * c->keys) * (c->causal ? 0.5 : 1), c->queries, c->keys);
  const uint64_t workspace = static_cast<uint64_t>(c->part_workspace) * c->parts * 4;
  answer(out, std::move(c), gradient ? chosen::attention_grad() : chosen::attention(), "attention").workspace =
      workspace;
  return true;
}

HM_PLANS(attention, {"attention", plan_attention}, {"attention_grad", plan_attention})

}  // namespace harmonics::cpu

#endif
