// Plans softmax, its losses, and normalisations.
#include "families.hpp"

namespace harmonics::cuda {
namespace {

const char* kOnlyF32 = "computes f32";

RowsParameters rows_of(const Site& site, int64_t columns) {
  return {static_cast<uint32_t>(count(site.in(0)) / columns), static_cast<uint32_t>(columns), HX_I64,
          static_cast<float>(site.number("epsilon", 1e-5))};
}

std::vector<Operand> all_buffers(const Site& site) {
  std::vector<Operand> all;
  for (uint32_t i = 0; i < site.inputs() + site.outputs(); ++i) all.push_back({i});
  return all;
}

hx_kernel& answer_rows(const Site& site, const RowKernel& kernel, const RowsParameters& rows, const char* name,
                       hx_kernel& out) {
  Work work(site.machine());
  work.launch(kernel.function, {(rows.rows + kernel.rows - 1) / kernel.rows, 1, 1, kernel.threads}, all_buffers(site),
              rows);
  return answer(out, std::move(work), name);
}

}  // namespace

bool plan_softmax(const Site& site, hx_kernel& out) {
  if (!site.all_f32() || site.in(0).rank == 0) return declined(kOnlyF32);
  const bool gradient = site.inputs() == 2, logarithm = site.op().substr(0, 3) == "log";
  const RowsParameters rows = rows_of(site, last(site.in(0)));
  const RowKernel kernel =
      gradient ? softmax_grad_kernel(rows.columns, logarithm) : softmax_kernel(rows.columns, logarithm);
  answer_rows(site, kernel, rows, logarithm ? "log softmax" : "softmax", out).in_place = gradient ? 3 : 1;
  return true;
}

bool plan_softmax_cross_entropy(const Site& site, hx_kernel& out) {
  const bool gradient = site.inputs() == 4;
  if (!is_f32(site.in(0)) || is_float(site.in(1).dtype) || !is_f32(site.out())) return declined(kOnlyF32);
  RowsParameters rows = rows_of(site, last(site.in(0)));
  rows.label_dtype = site.in(1).dtype;
  const RowKernel kernel = gradient ? cross_entropy_grad_kernel(rows.columns) : cross_entropy_kernel(rows.columns);
  answer_rows(site, kernel, rows, "softmax cross entropy", out).in_place = gradient ? 1 : 0;
  return true;
}

namespace {

// Returns the number of elements per statistic; 0: unsupported.
int64_t normalised(const Site& site) {
  const hx_type& x = site.in(0);
  const int64_t axes = site.op().substr(0, 5) == "layer" ? site.integer("norm_axes", 1) : 1;
  if (!site.all_f32() || axes < 1 || axes > x.rank) return 0;
  int64_t n = 1;
  for (uint32_t i = x.rank - static_cast<uint32_t>(axes); i < x.rank; ++i) n *= x.dims[i];
  return n;
}

}  // namespace

bool plan_row_norm(const Site& site, hx_kernel& out) {
  const int64_t columns = normalised(site);
  if (columns == 0) return declined(kOnlyF32);
  const bool centred = site.op().substr(0, 5) == "layer";
  const RowsParameters rows = rows_of(site, columns);
  answer_rows(site, centred ? layer_norm_kernel(rows.columns) : rms_norm_kernel(rows.columns), rows,
              centred ? "layer norm" : "rms norm", out)
      .in_place = 1;
  return true;
}

// Each block writes its partial sums of dgain and dbias; a second kernel adds them in order.
bool plan_row_norm_grad(const Site& site, hx_kernel& out) {
  const int64_t columns = normalised(site);
  if (columns == 0) return declined(kOnlyF32);
  if (columns > kMostSummedColumns) return declined("sums up to 8192 columns in one block");
  const bool centred = site.op().substr(0, 5) == "layer";
  const RowsParameters rows = rows_of(site, columns);
  const NormGradKernel kernel = centred ? layer_norm_grad_kernel(rows.columns) : rms_norm_grad_kernel(rows.columns);
  const NormGradParameters p{rows.rows, rows.columns,
                             std::min((rows.rows + kernel.rows - 1) / kernel.rows, kernel.most_blocks)};
  const Grid by_rows{p.blocks, 1, 1, kernel.threads},
      by_columns{(p.columns + kSummedColumns - 1) / kSummedColumns, 1, 1, kThreads};
  Work work(site.machine());
  const Operand sums = work.take_workspace(site, uint64_t{p.blocks} * p.columns * (centred ? 2 : 1) * sizeof(float));
  if (centred) {
    work.launch(kernel.function, by_rows, {{0}, {1}, {2}, {3}, {4}, {5}, sums}, p);
    work.launch(sum_two_blocks_function(), by_columns, {sums, {6}, {7}}, p);
  } else {
    work.launch(kernel.function, by_rows, {{0}, {1}, {2}, {3}, {4}, sums}, p);
    work.launch(sum_blocks_function(), by_columns, {sums, {5}}, p);
  }
  answer(out, std::move(work), centred ? "layer norm" : "rms norm");
  return true;
}

namespace {

ChannelParameters channels_of(const Site& site) {
  const hx_type& x = site.in(0);
  const int64_t places = count(x) / (x.dims[0] * x.dims[1]);
  return {static_cast<uint32_t>(x.dims[0]), static_cast<uint32_t>(x.dims[1]), static_cast<uint32_t>(places), 1,
          static_cast<float>(site.number("epsilon", 1e-5))};
}

}  // namespace

bool plan_batch_norm(const Site& site, hx_kernel& out) {
  if (!site.all_f32() || site.in(0).rank < 2) return declined(kOnlyF32);
  const bool gradient = site.op().ends_with("_grad");
  const ChannelParameters p = channels_of(site);
  Work work(site.machine());
  work.launch(gradient ? batch_norm_grad_function() : batch_norm_function(), {p.channels, 1, 1, kThreads},
              all_buffers(site), p);
  answer(out, std::move(work), "batch norm");
  return true;
}

bool plan_group_norm(const Site& site, hx_kernel& out) {
  const int64_t groups = site.integer("groups");
  if (!site.all_f32() || site.in(0).rank < 2 || groups < 1 || site.in(0).dims[1] % groups) return declined(kOnlyF32);
  ChannelParameters p = channels_of(site);
  p.groups = static_cast<uint32_t>(groups);
  const Grid by_group{p.batch * p.groups, 1, 1, kThreads};
  Work work(site.machine());
  if (site.op().ends_with("_grad")) {
    work.launch(group_norm_grad_function(), by_group, {{0}, {1}, {2}, {3}, {4}, {5}}, p);
    work.launch(group_norm_sums_function(), {p.channels, 1, 1, kThreads}, {{0}, {2}, {3}, {4}, {6}, {7}}, p);
  } else {
    work.launch(group_norm_function(), by_group, all_buffers(site), p);
  }
  answer(out, std::move(work), "group norm");
  return true;
}

HM_PLANS(rows, {"softmax", plan_softmax}, {"softmax_grad", plan_softmax}, {"log_softmax", plan_softmax},
         {"log_softmax_grad", plan_softmax}, {"softmax_cross_entropy", plan_softmax_cross_entropy},
         {"softmax_cross_entropy_grad", plan_softmax_cross_entropy}, {"layer_norm", plan_row_norm},
         {"layer_norm_grad", plan_row_norm_grad}, {"rms_norm", plan_row_norm}, {"rms_norm_grad", plan_row_norm_grad},
         {"batch_norm", plan_batch_norm}, {"batch_norm_grad", plan_batch_norm}, {"group_norm", plan_group_norm},
         {"group_norm_grad", plan_group_norm})

}  // namespace harmonics::cuda
