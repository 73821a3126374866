#include "chain_reduce.hpp"

#include "chain_builder.hpp"
#include "families.hpp"

namespace harmonics::cpu {
namespace {

struct OwnedChainReduce : ChainReduceContext, ChainStorage {};

hx_type type_of(const std::vector<int64_t>& shape) {
  hx_type t{};
  t.dtype = HX_F32;
  t.rank = static_cast<uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), t.dims);
  return t;
}

// Divides the rows into groups. Also slices the columns if there are too few groups, or more columns than rows, as
// products do.
void cut(ChainReduceContext& c, double nanoseconds) {
  const ReduceStage& s = c.stages.stage[0];
  c.slices = 1;
  c.groups = 1;
  c.join_parts = 0;
  int64_t units = s.outer * s.chunks, wanted = parts_for(nanoseconds, INT32_MAX);
  if (s.inner > 1) {
    constexpr int64_t kLeastSlice = 4;  // granules
    const int64_t rows = (s.rows + s.chunks - 1) / s.chunks;
    c.groups = (rows + kReduceGroup - 1) / kReduceGroup;
    units *= c.groups;
    wanted = std::max<int64_t>(wanted, parts_for_rows(nanoseconds, rows));
    const int64_t most = s.inner / (kSliceGranule * kLeastSlice);
    const int64_t slices = s.inner > rows ? wanted : (wanted + units - 1) / units;
    c.slices = static_cast<uint32_t>(std::clamp<int64_t>(slices, 1, std::max<int64_t>(1, most)));
    if (c.groups > 1)
      c.join_parts = parts_for(0.1 * static_cast<double>(units * s.inner),
                               s.outer * s.chunks * ((s.inner + kSliceGranule - 1) / kSliceGranule));
    units *= c.slices;
  }
  c.parts = static_cast<uint32_t>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, units)));
}

}  // namespace

bool plan_fused_reduce(const Site& site, hx_kernel& out) {
  const uint32_t last = site.outputs() - 1;
  const auto reduction = reduction_of(site.text("reduction"));
  const hx_type whole = type_of(site.integers("shape"));
  ChainBuilder builder(dims(whole), site.inputs());
  if (!reduction || !is_f32(site.out(last)) || !builder.steps_of(site)) return false;
  auto c = std::make_unique<OwnedChainReduce>();
  c->reduced = builder.named(site.raw().chain_outputs[last]);
  if (c->reduced >= builder.registers() || builder.dtype(c->reduced) != HX_F32) return false;
  for (uint32_t i = 0; i < last; ++i)
    if (!builder.output(i, builder.named(site.raw().chain_outputs[i]))) return false;
  builder.keep(c->reduced);
  if (!builder.fill(c->chain, *c)) return false;

  c->stages.dtype = HX_F32;
  c->stages.reduction = *reduction;
  if (!plan_stages(whole, site.integers("axes"), c->stages)) return false;
  c->workspace = site.inputs() + site.outputs();
  c->partials = place_stages(c->stages, c->workspace, c->workspace - 1, c->workspace);
  cut(*c, builder.nanoseconds() + 0.1 * static_cast<double>(builder.count()));
  std::vector<uint32_t> parts{c->parts};
  int64_t floats = c->partials;
  if (c->join_parts) {
    const ReduceStage& s = c->stages.stage[0];
    parts.push_back(c->join_parts);
    floats += s.outer * s.chunks * c->groups * s.inner;
  }
  for (uint32_t i = 1; i < c->stages.stages; ++i) parts.push_back(c->stages.stage[i].parts);
  if (parts.size() > HX_MAX_PHASES) return false;
  const uint32_t in_place = last > 0 ? builder.in_place_mask() : 0;
  hx_kernel& kernel = answer<ChainReduceContext>(out, std::move(c), isa().chain_reduce, "fused reduce", parts);
  kernel.workspace = static_cast<uint64_t>(floats) * sizeof(float);
  kernel.in_place = in_place;
  return true;
}

HM_PLANS(chain_reduce, {"fused_reduce", plan_fused_reduce})

}  // namespace harmonics::cpu
