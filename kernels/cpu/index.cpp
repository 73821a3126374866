#include "index.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "families.hpp"

namespace harmonics::cpu {
namespace {

std::unique_ptr<IndexContext> index_context(const hx_type& x, size_t axis, const hx_type& ids) {
  auto c = std::make_unique<IndexContext>();
  c->size = x.dims[axis];
  c->inner = strides(x)[axis];
  c->outer = count(x) / (c->size * c->inner);
  c->indices = count(ids);
  c->index_dtype = ids.dtype;
  c->element_bytes = static_cast<uint32_t>(width(x.dtype));
  return c;
}

bool answer_scatter(std::unique_ptr<IndexContext> c, hx_kernel& out, const char* name) {
  const double updates = static_cast<double>(c->outer * c->indices);
  const double ns =
      updates * (2 + 0.15 * static_cast<double>(c->inner)) + 0.1 * static_cast<double>(c->outer * c->size * c->inner);
  c->row_parts = c->column_parts = 1;
  if (c->inner >= 32)
    c->column_parts = parts_for(ns, c->inner / 16);
  else
    c->row_parts = parts_for(ns, c->size);
  const std::vector<uint32_t> parts = {c->row_parts * c->column_parts};
  answer(out, std::move(c), isa().scatter_add, name, parts);
  return true;
}

// Positions along one axis, the same for every outer row.
std::unique_ptr<PositionContext> one_axis(const hx_type& x, size_t axis, const hx_type& ids) {
  auto c = std::make_unique<PositionContext>();
  c->rows = c->sizes[0] = x.dims[axis];
  c->inner = strides(x)[axis];
  c->batches = count(x) / (c->rows * c->inner);
  c->places = count(ids);
  c->k = 1;
  c->shared = true;
  c->index_dtype = ids.dtype;
  c->dtype = x.dtype;
  c->element_bytes = static_cast<uint32_t>(width(x.dtype));
  c->kind = ScatterKind::add;
  return c;
}

std::unique_ptr<PositionContext> position_context(const Site& site) {
  const hx_type &x = site.in(0), &ids = site.in(1);
  auto c = std::make_unique<PositionContext>();
  const auto batch = static_cast<uint32_t>(site.integer("batch_axes"));
  c->k = static_cast<uint32_t>(last(ids));
  c->batches = c->rows = c->inner = 1;
  for (uint32_t i = 0; i < x.rank; ++i) {
    if (i >= batch && i < batch + c->k) c->sizes[i - batch] = x.dims[i];
    (i < batch ? c->batches : i < batch + c->k ? c->rows : c->inner) *= x.dims[i];
  }
  c->places = count(ids) / (c->batches * c->k);
  c->index_dtype = ids.dtype;
  c->dtype = x.dtype;
  c->element_bytes = static_cast<uint32_t>(width(x.dtype));
  return c;
}

// Plans the scatter of updates into x, in place if allowed. 16-bit floats are accumulated in f32 and rounded once; the
// workspace contains result and updates in f32.
bool answer_positions(const Site& site, std::unique_ptr<PositionContext> c, hx_kernel& out, const char* name) {
  c->half = c->kind != ScatterKind::set && kernels::is_half(c->dtype) ? c->dtype : 0;
  if (c->half) c->dtype = HX_F32;
  const int64_t bytes = count(site.in(0)) * c->element_bytes;
  const double ns =
      static_cast<double>(c->batches * c->places) * (6 + 0.05 * static_cast<double>(c->inner * c->element_bytes));
  c->copy_parts = parts_for(0.05 * static_cast<double>(bytes), bytes);
  c->row_parts = c->column_parts = 1;
  if (c->inner >= 32)
    c->column_parts = parts_for(ns, c->inner / 16);
  else
    c->row_parts = parts_for(ns, c->batches * c->rows);
  std::vector<uint32_t> parts = {c->copy_parts, c->row_parts * c->column_parts};
  if (c->half) parts.push_back(c->copy_parts);
  const int64_t floats = c->half ? count(site.in(0)) + count(site.in(2)) : 0;
  hx_kernel& kernel = answer(out, std::move(c), isa().scatter_nd, name, parts);
  kernel.in_place = 1;
  kernel.workspace = static_cast<uint64_t>(floats) * sizeof(float);
  return true;
}

std::unique_ptr<BlockCopyContext> block_copy(const hx_type& whole, const hx_type& block, const hx_type& starts) {
  auto c = std::make_unique<BlockCopyContext>();
  const std::vector<int64_t> steps = strides(whole);
  const int64_t bytes = width(whole.dtype);
  c->rank = whole.rank;
  c->run_axes = whole.rank - 1;
  while (c->run_axes > 0 && block.dims[c->run_axes] == whole.dims[c->run_axes]) --c->run_axes;
  c->runs = 1;
  for (uint32_t i = 0; i < c->rank; ++i) {
    c->sizes[i] = block.dims[i];
    c->last_starts[i] = whole.dims[i] - block.dims[i];
    c->axis_bytes[i] = steps[i] * bytes;
    if (i < c->run_axes) c->runs *= block.dims[i];
  }
  c->run_bytes = count(block) / c->runs * bytes;
  c->whole_bytes = count(whole) * bytes;
  c->starts_dtype = starts.dtype;
  c->parts = parts_for(static_cast<double>(c->runs) * (6 + 0.05 * static_cast<double>(c->run_bytes)), c->runs);
  return c;
}

}  // namespace

bool plan_dynamic_slice(const Site& site, hx_kernel& out) {
  if (!is_index(site.in(1))) return false;
  auto c = block_copy(site.in(0), site.out(), site.in(1));
  c->starts = 1;
  answer(out, std::move(c), isa().dynamic_slice, "dynamic slice");
  return true;
}

bool plan_update_slice(const Site& site, hx_kernel& out) {
  if (!is_index(site.in(2))) return false;
  auto c = block_copy(site.in(0), site.in(1), site.in(2));
  c->starts = 2;
  c->copy_parts = parts_for(0.05 * static_cast<double>(c->whole_bytes), c->whole_bytes);
  const std::vector<uint32_t> parts = {c->copy_parts, c->parts};
  answer(out, std::move(c), isa().update_slice, "update slice", parts).in_place = 1;
  return true;
}

bool plan_top_k(const Site& site, hx_kernel& out) {
  const uint32_t type = site.in(0).dtype;
  if (type != HX_F32 && type != HX_F16 && type != HX_BF16 && type != HX_F64) return false;
  auto c = std::make_unique<TopKContext>();
  c->type = type == HX_F16    ? TopKContext::f16
            : type == HX_BF16 ? TopKContext::bf16
            : type == HX_F64  ? TopKContext::f64
                              : TopKContext::f32;
  c->size = last(site.in(0));
  c->rows = count(site.in(0)) / c->size;
  c->k = last(site.out());
  const double chosen = static_cast<double>(c->k),
               row = static_cast<double>(c->size) + 8 * chosen * std::log2(chosen + 1);
  c->parts = parts_for(static_cast<double>(c->rows) * row, c->rows);
  answer(out, std::move(c), isa().top_k, "top k");
  return true;
}

bool plan_gather(const Site& site, hx_kernel& out) {
  if (kernels::is_stored(site.in(0).dtype)) return plan_typed_embedding(site, out);
  if (!is_index(site.in(1)) || site.in(0).rank == 0) return false;
  if (site.in(0).dtype != site.out().dtype) return declined("copies rows, without a conversion");
  const int64_t axis = site.op() == "embedding" ? 0 : site.integer("axis");
  auto c = index_context(site.in(0), static_cast<size_t>(axis), site.in(1));
  c->x = 0;
  c->ids = 1;
  c->y = 2;
  const int64_t rows = c->outer * c->indices;
  c->parts = parts_for(static_cast<double>(rows) * (4 + 0.05 * static_cast<double>(c->inner * c->element_bytes)), rows);
  answer(out, std::move(c), isa().gather, "gather");
  return true;
}

bool plan_scatter_add(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!is_index(site.in(1)) || x.rank == 0 || site.in(2).dtype != x.dtype) return false;
  const auto axis = static_cast<size_t>(site.integer("axis"));
  if (!is_f32(x)) return answer_positions(site, one_axis(x, axis, site.in(1)), out, "scatter add");
  auto c = index_context(x, axis, site.in(1));
  c->has_x = true;
  c->ids = 1;
  c->updates = 2;
  c->y = 3;
  answer_scatter(std::move(c), out, "scatter add");
  out.in_place = 1;
  return true;
}

bool plan_gather_nd(const Site& site, hx_kernel& out) {
  if (!is_index(site.in(1))) return false;
  auto c = position_context(site);
  const int64_t rows = c->batches * c->places;
  c->parts = parts_for(static_cast<double>(rows) * (6 + 0.05 * static_cast<double>(c->inner * c->element_bytes)), rows);
  answer(out, std::move(c), isa().gather_nd, "gather nd");
  return true;
}

bool plan_scatter_nd(const Site& site, hx_kernel& out) {
  constexpr std::string_view kKinds[] = {"set", "add", "max", "min"};
  const std::string name = site.text("reduction");
  const auto* kind = std::find(std::begin(kKinds), std::end(kKinds), name.empty() ? std::string("set") : name);
  if (!is_index(site.in(1)) || kind == std::end(kKinds)) return false;
  auto c = position_context(site);
  c->kind = static_cast<ScatterKind>(kind - std::begin(kKinds));
  return answer_positions(site, std::move(c), out, "scatter nd");
}

bool plan_embedding_grad(const Site& site, hx_kernel& out) {
  if (!is_index(site.in(0)) || !is_f32(site.in(1)) || !is_f32(site.out())) return false;
  auto c = index_context(site.out(), 0, site.in(0));
  c->updates = 1;
  c->y = 2;
  return answer_scatter(std::move(c), out, "embedding gradient");
}

HM_PLANS(index, {"gather", plan_gather}, {"embedding", plan_gather}, {"scatter_add", plan_scatter_add},
         {"gather_nd", plan_gather_nd}, {"scatter_nd", plan_scatter_nd}, {"dynamic_slice", plan_dynamic_slice},
         {"update_slice", plan_update_slice}, {"top_k", plan_top_k}, {"embedding_grad", plan_embedding_grad})

}  // namespace harmonics::cpu
