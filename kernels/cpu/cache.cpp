#include "cache.hpp"

#include "families.hpp"

namespace harmonics::cpu {

bool plan_cache_append(const Site& site, hx_kernel& out) {
  const hx_type &cache = site.in(0), &rows = site.in(1), &start = site.in(2);
  const bool narrows = (cache.dtype == HX_F16 || cache.dtype == HX_Q8_0) && is_f32(rows);
  const bool paged = site.inputs() == 4;
  if (paged != (site.text("operands") == "pages") || (paged && site.in(3).dtype != HX_I32)) return false;
  if (start.dtype != HX_I32 || (!narrows && (cache.dtype != rows.dtype || site.has_stored()))) return false;
  auto c = std::make_unique<AppendContext>();
  c->batch = rows.dims[0];
  c->capacity = cache.dims[1];
  c->rows = rows.dims[1];
  c->row = count(rows) / (c->batch * c->rows);
  c->row_bytes = static_cast<int64_t>(run_bytes(static_cast<DType>(cache.dtype), c->row));
  c->from_bytes = c->row * width(rows.dtype);
  c->whole_bytes = cache.dims[0] * c->capacity * c->row_bytes;
  c->how = !narrows ? Append::copy : cache.dtype == HX_F16 ? Append::narrow_f16 : Append::narrow_q8_0;
  c->copy_parts = parts_for(0.05 * static_cast<double>(c->whole_bytes), c->whole_bytes);
  const double block = static_cast<double>(count(rows)) * 4;
  const double nanoseconds = 0.1 * block + 6.0 * static_cast<double>(c->batch * c->rows);
  c->entries = paged ? site.in(3).dims[1] : 0;
  c->pool = cache.dims[0];
  c->parts = parts_for(nanoseconds, paged ? (c->row + kAppendShare - 1) / kAppendShare : c->batch * c->rows);
  c->share = ((c->row + c->parts - 1) / c->parts + kAppendShare - 1) / kAppendShare * kAppendShare;
  const std::vector<uint32_t> parts = {c->copy_parts, c->parts};
  answer(out, std::move(c), isa().cache_append, paged ? "paged cache append" : "cache append", parts).in_place = 1;
  return true;
}

HM_PLANS(cache, {"cache_append", plan_cache_append})

}  // namespace harmonics::cpu
