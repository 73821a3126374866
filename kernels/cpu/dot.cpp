// dot, dot_add and dot_sum with any batch and contraction axes, as batched matrix products.
#include <cstring>

#include "families.hpp"
#include "kernels/shared/dot_operand.hpp"
#include "matmul.hpp"
#include "rounded_product.hpp"
#include "routes.hpp"

namespace harmonics::cpu {
namespace {

using kernels::DotOperand;
using kernels::run_of;

// Returns the element offset of each batch entry.
std::vector<int64_t> offsets_of(const hx_type& t, const std::vector<int64_t>& axes) {
  const std::vector<int64_t> own = strides(t);
  std::vector<int64_t> offsets{0};
  for (int64_t axis : axes) {
    std::vector<int64_t> next;
    for (int64_t o : offsets)
      for (int64_t i = 0; i < t.dims[axis]; ++i) next.push_back(o + i * own[static_cast<size_t>(axis)]);
    offsets = std::move(next);
  }
  return offsets;
}

// Options of a product, independent of its operands.
struct Manner {
  bool half, bf16, accumulate;
  bool constant_b = false;
};

std::optional<Product> product_of(const DotOperand& a, const DotOperand& b, const Manner& manner) {
  const auto m = run_of(a.type, a.free), ka = run_of(a.type, a.contract);
  const auto n = run_of(b.type, b.free), kb = run_of(b.type, b.contract);
  if (!m || !ka || !n || !kb) return std::nullopt;
  Product p{};
  p.batch = 1;
  p.m = m->size;
  p.n = n->size;
  p.k = ka->size;
  p.a_row = m->stride;
  p.a_column = ka->stride;
  p.b_row = kb->stride;
  p.b_column = n->stride;
  p.b = 1;
  p.c = 2;
  p.half = manner.half;
  p.bf16 = manner.bf16;
  p.accumulate = manner.accumulate;
  return p;
}

bool answer_operands(const DotOperand& a, const DotOperand& b, const Manner& manner, hx_kernel& out) {
  std::optional<Product> p = product_of(a, b, manner);
  if (!p) return false;
  auto a_offsets = offsets_of(a.type, a.batch), b_offsets = offsets_of(b.type, b.batch);
  p->batch = static_cast<int64_t>(a_offsets.size());
  p->constant_b = manner.constant_b && rounding_of(*p);
  return answer_product(*p, std::move(a_offsets), std::move(b_offsets), out);
}

// A product after a phase that copies operands to a layout it supports.
struct Rearranged {
  CopyContext copies[2];
  uint32_t copy_parts[2] = {};  // 0: the operand is used in place
  int64_t offsets[2] = {};      // in the workspace, floats
  int64_t floats = 0;           // before the product's own workspace
  InnerKernel product;
};

void run_rearranged(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const Rearranged*>(context);
  if (phase == 0) {
    const int which = part < c.copy_parts[0] ? 0 : 1;
    return chosen::strided_copy()(&c.copies[which], buffers, 0, which ? part - c.copy_parts[0] : part);
  }
  float* workspace = static_cast<float*>(buffers[3]);
  void* const own[] = {c.copy_parts[0] ? workspace + c.offsets[0] : buffers[0],
                       c.copy_parts[1] ? workspace + c.offsets[1] : buffers[1], buffers[2], workspace + c.floats};
  c.product.run(c.product.context, own, phase - 1, part);
}

bool answer_rearranged(std::array<DotOperand, 2>& operands, const Manner& manner, hx_kernel& out) {
  auto c = std::make_unique<Rearranged>();
  for (uint32_t i = 0; i < 2; ++i) {
    if (operands[i].is_matrix()) continue;
    c->offsets[i] = c->floats;
    Walk walk = operands[i].rearrange();
    walk.offsets[0] = c->floats;
    c->copies[i] = copy_context(std::move(walk), sizeof(float), i, 3);
    c->copy_parts[i] = c->copies[i].parts;
    c->floats += (count(operands[i].type) + 15) & ~int64_t{15};
  }
  if (!answer_operands(operands[0], operands[1], manner, c->product)) return false;
  std::vector<uint32_t> parts = {c->copy_parts[0] + c->copy_parts[1]};
  parts.insert(parts.end(), c->product.parts, c->product.parts + c->product.phases);
  const uint64_t workspace = static_cast<uint64_t>(c->floats) * sizeof(float) + c->product.workspace;
  const char* name = c->product.name;
  answer(out, std::move(c), run_rearranged, name, parts).workspace = workspace;
  return true;
}

// Plans the product of inputs `first` and `first` + 1; the kernel's buffers are 0, 1 and 2.
bool answer_dot(const Site& site, uint32_t first, bool accumulate, hx_kernel& out) {
  auto operands = kernels::dot_operands(site, first);
  Manner manner{site.allows_half(), site.allows_bf16(), accumulate, site.is_constant(first + 1)};
  if (operands[0].is_matrix() && operands[1].is_matrix() && answer_operands(operands[0], operands[1], manner, out))
    return true;
  manner.constant_b = false;  // rearranged in each run
  return answer_rearranged(operands, manner, out);
}

// Initialises C with the addend, or zero, before the product is accumulated. If the product has several phases, this
// runs in its first one, which only prepares operands.
struct Sum {
  int64_t count = 0;
  uint32_t out = 0, parts = 0;
  uint32_t keep = 0;                       // buffer of the condition; 0: always add
  uint32_t product_parts = 0, before = 0;  // parts of the product's first phase; phases before the product
  InnerKernel product;
};

void begin_sum(const Sum& c, void* const* buffers, uint32_t part) {
  const int64_t lines = (c.count + 15) / 16, begin = lines * part / c.parts * 16,
                end = std::min(lines * (part + 1) / c.parts * 16, c.count);
  if (begin >= end) return;
  const auto* sum = static_cast<const float*>(buffers[0]);
  auto* to = static_cast<float*>(buffers[c.out]);
  const size_t bytes = static_cast<size_t>(end - begin) * sizeof(float);
  if (c.keep && !*static_cast<const uint8_t*>(buffers[c.keep]))
    std::memset(to + begin, 0, bytes);
  else if (to != sum)
    std::memcpy(to + begin, sum + begin, bytes);
}

void run_sum(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const Sum*>(context);
  if (phase == 0 && part >= c.product_parts) return begin_sum(c, buffers, part - c.product_parts);
  void* const packed = c.product.packed_bytes ? buffers[c.out + 2] : nullptr;
  void* const own[] = {buffers[1], buffers[2], buffers[c.out], buffers[c.out + 1], packed};
  c.product.run(c.product.context, own, phase - c.before, part);
}

}  // namespace

std::optional<Product> product_of_dot(const Site& site) {
  const auto operands = kernels::dot_operands(site, 0);
  if (!operands[0].is_matrix() || !operands[1].is_matrix() || !operands[0].batch.empty()) return std::nullopt;
  return product_of(operands[0], operands[1], {site.allows_half(), site.allows_bf16(), false});
}

bool plan_dot(const Site& site, hx_kernel& out) {
  if (!site.all_f32() || kernels::sum_type(site, HX_F32, HX_F32) != HX_F32)
    return declined("multiplies f32, with sums of f32");
  return answer_dot(site, 0, false, out);
}

// sum, a, b, keep? -> sum + a b; output 0 may share the memory of `sum`
bool plan_dot_add(const Site& site, hx_kernel& out) {
  for (uint32_t i = 0; i < 3; ++i)
    if (!is_f32(site.in(i))) return false;
  if (!same_shape(site.in(0), site.out()) ||
      (site.inputs() == 4 && (site.in(3).dtype != HX_BOOL || count(site.in(3)) != 1)))
    return false;
  auto c = std::make_unique<Sum>();
  if (!answer_dot(site, 1, true, c->product)) return false;
  c->count = count(site.out());
  c->out = site.inputs();
  c->keep = site.inputs() == 4 ? 3 : 0;
  c->parts = parts_for(static_cast<double>(c->count) * 0.1, (c->count + 15) / 16);
  std::vector<uint32_t> parts(c->product.parts, c->product.parts + c->product.phases);
  c->before = parts.size() == 1;
  if (c->before) parts.insert(parts.begin(), 0);
  c->product_parts = parts[0];
  parts[0] += c->parts;
  const uint64_t workspace = c->product.workspace;
  const char* name = c->product.name;
  hx_kernel& kernel = answer(out, std::move(c), run_sum, name, parts);
  kernel.workspace = workspace;
  kernel.in_place = 1;
  pass_packing<Sum, &Sum::product>(2, kernel);
  return true;
}

namespace {

// A product with column sums of b. Buffers of its kernel: a, b, product, workspace, unused, sums.
struct SummedProduct {
  static constexpr uint32_t kSums = 5;
  InnerKernel product;
};

void run_summed(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const hx_kernel& product = static_cast<const SummedProduct*>(context)->product;
  void* const own[] = {buffers[0], buffers[1], buffers[2], buffers[4], nullptr, buffers[3]};
  product.run(product.context, own, phase, part);
}

// a, b -> a b, and the sums of b over the contracted axes
bool plan_dot_sum(const Site& site, hx_kernel& out) {
  if (!site.all_f32() || kernels::sum_type(site, HX_F32, HX_F32) != HX_F32)
    return declined("multiplies f32, with sums of f32");
  if (site.integer("sum", 0) != 1) return declined("sums the second operand");
  auto p = product_of_dot(site);
  if (!p) return false;
  p->sums = SummedProduct::kSums;
  p->extra = 1;
  auto c = std::make_unique<SummedProduct>();
  if (!answer_summed_product(*p, c->product)) return declined("sums with products of many rows");
  answer_as(&SummedProduct::product, out, std::move(c), run_summed);
  return true;
}

}  // namespace

HM_PLANS(dot, {"dot", plan_dot}, {"dot_add", plan_dot_add}, {"dot_sum", plan_dot_sum})

}  // namespace harmonics::cpu
