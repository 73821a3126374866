#include "norm.hpp"

#include "families.hpp"

namespace harmonics::cpu {

bool plan_row_norm(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return false;
  const bool centred = site.op().substr(0, 5) == "layer", gradient = site.op().ends_with("_grad");
  const hx_type& x = site.in(0);
  const int64_t axes = centred ? site.integer("norm_axes", 1) : 1;
  if (axes < 1 || axes > x.rank) return false;
  auto c = std::make_unique<NormContext>();
  c->columns = 1;
  for (uint32_t i = x.rank - static_cast<uint32_t>(axes); i < x.rank; ++i) c->columns *= x.dims[i];
  c->rows = count(x) / c->columns;
  c->centred = centred;
  c->epsilon = static_cast<float>(site.number("epsilon", 1e-5));
  const auto elements = static_cast<double>(count(x));
  if (!gradient) {
    c->parts = parts_for(elements * 0.5, c->rows);
    answer(out, std::move(c), isa().row_norm, centred ? "layer norm" : "rms norm").in_place = 1;
    return true;
  }
  c->parts = sums_for(elements * 0.8, c->rows);
  c->column_parts = parts_for(0.2 * static_cast<double>(c->columns * c->parts), (c->columns + 15) / 16);
  const uint64_t workspace = static_cast<uint64_t>(c->columns) * c->parts * (centred ? 2 : 1) * 4;
  const std::vector<uint32_t> parts = {c->parts, c->column_parts};
  answer(out, std::move(c), isa().row_norm_grad, centred ? "layer norm" : "rms norm", parts).workspace = workspace;
  return true;
}

bool plan_batch_norm(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!site.all_f32() || x.rank < 2) return false;
  const bool gradient = site.op().ends_with("_grad");
  auto c = std::make_unique<BatchNormContext>();
  c->batch = x.dims[0];
  c->channels = x.dims[1];
  c->places = count(x) / (c->batch * c->channels);
  c->epsilon = static_cast<float>(site.number("epsilon", 1e-5));
  const bool columns = c->places == 1;
  c->parts = parts_for(static_cast<double>(count(x)) * (gradient ? 0.8 : 0.6),
                       columns ? (c->channels + 15) / 16 : c->channels);
  const IsaTable& t = isa();
  answer(out, std::move(c),
         gradient  ? (columns ? t.batch_norm_columns_grad : t.batch_norm_grad)
         : columns ? t.batch_norm_columns
                   : t.batch_norm,
         "batch norm");
  return true;
}

bool plan_group_norm(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const int64_t groups = site.integer("groups");
  if (!site.all_f32() || x.rank < 2 || groups < 1 || x.dims[1] % groups) return false;
  const bool gradient = site.op().ends_with("_grad");
  auto c = std::make_unique<GroupNormContext>();
  c->batch = x.dims[0];
  c->groups = groups;
  c->channels = x.dims[1] / groups;
  c->places = count(x) / (x.dims[0] * x.dims[1]);
  c->epsilon = static_cast<float>(site.number("epsilon", 1e-5));
  c->parts = parts_for(static_cast<double>(count(x)) * (gradient ? 0.8 : 0.6), c->batch * groups);
  if (!gradient) {
    answer(out, std::move(c), isa().group_norm, "group norm").in_place = 1;
    return true;
  }
  c->channel_parts = parts_for(0.2 * static_cast<double>(c->batch * x.dims[1]), (x.dims[1] + 15) / 16);
  const uint64_t workspace = static_cast<uint64_t>(c->batch * x.dims[1]) * 2 * sizeof(float);
  const std::vector<uint32_t> parts{c->parts, c->channel_parts};
  answer(out, std::move(c), isa().group_norm_grad, "group norm", parts).workspace = workspace;
  return true;
}

}  // namespace harmonics::cpu
