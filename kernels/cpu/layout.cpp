#include "layout.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "families.hpp"

namespace harmonics::cpu {
namespace {

double copy_nanoseconds(int64_t bytes) { return 0.15 * static_cast<double>(bytes); }

// Returns the view of a walk with joined axes; it has at least one axis.
StridedView view_of(Walk walk) {
  walk.join();
  if (walk.sizes.empty()) walk = {{1}, {{1}, {1}}, std::move(walk.offsets)};
  StridedView v{};
  v.rank = static_cast<uint32_t>(walk.sizes.size());
  for (uint32_t i = 0; i < v.rank; ++i) {
    v.dims[i] = walk.sizes[i];
    v.to_strides[i] = walk.strides[0][i];
    v.from_strides[i] = walk.strides[1][i];
  }
  v.to_offset = walk.offsets[0];
  v.from_offset = walk.offsets[1];
  return v;
}

// Sets `bits` to the element of `dtype` nearest to a number.
bool element_bits(uint32_t dtype, double value, uint64_t& bits) {
  bits = 0;
  switch (dtype) {
    case HX_F32:
      bits = std::bit_cast<uint32_t>(static_cast<float>(value));
      return true;
    case HX_F64:
      bits = std::bit_cast<uint64_t>(value);
      return true;
    case HX_BOOL:
      bits = value != 0;
      return true;
    case HX_U8:
      bits = static_cast<uint8_t>(value);
      return true;
    case HX_I32:
      bits = static_cast<uint32_t>(static_cast<int32_t>(value));
      return true;
    case HX_I64:
      bits = static_cast<uint64_t>(static_cast<int64_t>(value));
      return true;
    default:
      return false;
  }
}

bool answer_copy(const Site& site, Walk walk, const char* name, hx_kernel& out, int64_t fill_count = 0,
                 uint64_t fill = 0) {
  auto c =
      std::make_unique<CopyContext>(copy_context(std::move(walk), kernels::width(site.out().dtype), 0, site.inputs()));
  c->fill_count = fill_count;
  c->fill = fill;
  std::vector<uint32_t> parts(fill_count ? 2 : 1, c->parts);
  answer(out, std::move(c), isa().strided_copy, name, parts);
  return true;
}

}  // namespace

CopyContext copy_context(Walk walk, uint32_t element_bytes, uint32_t from_buffer, uint32_t to_buffer) {
  CopyContext c{};
  c.view = view_of(std::move(walk));
  c.element_bytes = element_bytes;
  c.from_buffer = from_buffer;
  c.to_buffer = to_buffer;
  c.tile_axis = -1;
  const uint32_t last = c.view.rank - 1;
  int64_t n = 1;
  for (uint32_t i = 0; i < c.view.rank; ++i) n *= c.view.dims[i];
  for (uint32_t i = 0; i < last; ++i)
    if (c.view.to_strides[last] == 1 && c.view.from_strides[last] != 1 && c.view.from_strides[i] == 1)
      c.tile_axis = static_cast<int32_t>(i);
  c.split_axis = static_cast<uint32_t>(std::max_element(c.view.dims, c.view.dims + std::max(last, 1u)) - c.view.dims);
  c.parts = parts_for(copy_nanoseconds(n * element_bytes) * (c.tile_axis >= 0 ? 3 : 1), c.view.dims[c.split_axis]);
  return c;
}

bool plan_transpose(const Site& site, hx_kernel& out) {
  return answer_copy(site, kernels::transpose_walk(site), "transpose", out);
}
bool plan_broadcast(const Site& site, hx_kernel& out) {
  return answer_copy(site, kernels::broadcast_walk(site), "broadcast", out);
}
bool plan_slice(const Site& site, hx_kernel& out) { return answer_copy(site, kernels::slice_walk(site), "slice", out); }
bool plan_reverse(const Site& site, hx_kernel& out) {
  return answer_copy(site, kernels::reverse_walk(site), "reverse", out);
}

bool plan_bitcast(const Site& site, hx_kernel& out) {
  return answer_copy(site, {{count(site.out())}, {{1}, {1}}, {0, 0}}, "bitcast", out);
}

bool plan_pad(const Site& site, hx_kernel& out) {
  const auto low = site.integers("low");
  const hx_type& y = site.out();
  uint64_t fill = 0;
  if (!element_bits(y.dtype, site.number("value"), fill)) return false;
  if (std::any_of(low.begin(), low.end(), [](int64_t n) { return n < 0; })) return false;
  return answer_copy(site, kernels::pad_walk(site), "pad", out, count(y), fill);
}

bool plan_concat(const Site& site, hx_kernel& out) {
  struct Owned : ConcatContext {
    std::vector<int64_t> bytes;
  };
  const auto axis = static_cast<uint32_t>(site.integer("axis"));
  const hx_type& y = site.out();
  auto c = std::make_unique<Owned>();
  c->outer = 1;
  for (uint32_t i = 0; i < axis; ++i) c->outer *= y.dims[i];
  c->row_bytes = count(y) / c->outer * width(y.dtype);
  for (uint32_t i = 0; i < site.inputs(); ++i) c->bytes.push_back(count(site.in(i)) / c->outer * width(y.dtype));
  c->input_bytes = c->bytes.data();
  c->n_inputs = site.inputs();
  c->parts = parts_for(copy_nanoseconds(c->outer * c->row_bytes), c->outer);
  answer<ConcatContext>(out, std::move(c), isa().concat, "concat");
  return true;
}

bool plan_full(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<FillContext>();
  if (!element_bits(site.out().dtype, site.number("value"), c->bits)) return false;
  c->count = count(site.out());
  c->element_bytes = static_cast<uint32_t>(width(site.out().dtype));
  c->parts = parts_for(copy_nanoseconds(c->count * c->element_bytes) / 2, c->count);
  answer(out, std::move(c), isa().full, "full");
  return true;
}

bool plan_iota(const Site& site, hx_kernel& out) {
  const hx_type& y = site.out();
  if (y.dtype != HX_F32 && y.dtype != HX_F64 && y.dtype != HX_I32 && y.dtype != HX_I64) return false;
  auto c = std::make_unique<FillContext>();
  const auto axis = static_cast<size_t>(site.integer("axis"));
  c->count = count(y);
  c->dtype = y.dtype;
  c->size = y.dims[axis];
  c->inner = strides(y)[axis];
  c->parts = parts_for(static_cast<double>(c->count) * 5, c->count);
  answer(out, std::move(c), isa().iota, "iota");
  return true;
}

bool plan_random_uniform(const Site& site, hx_kernel& out) {
  if (site.in(0).dtype != HX_I64 || count(site.in(0)) != 2 || !is_f32(site.out())) return false;
  auto c = std::make_unique<RandomContext>();
  c->count = count(site.out());
  c->stream = static_cast<uint64_t>(site.integer("stream"));
  c->parts = parts_for(static_cast<double>(c->count) * 1.2, (c->count + 63) / 64);
  answer(out, std::move(c), isa().random_uniform, "philox");
  return true;
}

HM_PLANS(layout, {"transpose", plan_transpose}, {"broadcast", plan_broadcast}, {"slice", plan_slice},
         {"reverse", plan_reverse}, {"pad", plan_pad}, {"concat", plan_concat}, {"bitcast", plan_bitcast},
         {"full", plan_full}, {"iota", plan_iota}, {"random_uniform", plan_random_uniform})

}  // namespace harmonics::cpu
