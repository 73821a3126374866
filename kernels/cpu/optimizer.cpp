#include "optimizer.hpp"

#include "bf16_product.hpp"
#include "families.hpp"
#include "half_product.hpp"
#include "product_costs.hpp"
#include "sparse_product.hpp"

namespace harmonics::cpu {
namespace {

constexpr int64_t kMomentBlock = 16;  // rows and columns that share a scale

bool is_step_number(const hx_type& t) { return (t.dtype == HX_I64 || t.dtype == HX_I32) && count(t) == 1; }

// Whether t has the type and shape of the scales of w's blocks.
bool is_scale(const hx_type& t, const hx_type& w) {
  if (w.rank < 2 || count(w) == 0) return false;
  const int64_t rows = w.dims[0], columns = count(w) / rows;
  return t.dtype == HX_U8 && t.rank == 2 && t.dims[0] == (rows + kMomentBlock - 1) / kMomentBlock &&
         t.dims[1] == (columns + kMomentBlock - 1) / kMomentBlock;
}

// Reads the storage type of `moments` moments from the `tensors` inputs that begin at `first`. False: unexpected
// tensors.
bool moments_of(const Site& site, uint32_t first, uint32_t moments, uint32_t tensors, MomentType& type) {
  type = moments == 0                      ? MomentType::f32
         : site.in(first).dtype == HX_U8   ? MomentType::coded
         : site.in(first).dtype == HX_BF16 ? MomentType::bf16
                                           : MomentType::f32;
  const uint32_t dtype = type == MomentType::f32 ? HX_F32 : type == MomentType::bf16 ? HX_BF16 : HX_U8;
  if (tensors != (type == MomentType::coded ? 2 * moments : moments)) return false;
  for (uint32_t k = 0; k < tensors; ++k) {
    const hx_type& t = site.in(first + k);
    if (k < moments ? t.dtype != dtype || !same_shape(t, site.in(0)) : !is_scale(t, site.in(0))) return false;
  }
  return true;
}

// Reads the settings of `update`, whose moments begin at input `first`. Returns false for other updates, and for
// moments, a learning rate or a step number of an unexpected type or shape.
bool rule_of(const Site& site, std::string_view update, uint32_t first, OptimizerContext& c) {
  const bool is_sgd = update == "sgd", is_lion = update == "lion", is_adam = update == "adam" || update == "adamw";
  if ((!is_sgd && !is_lion && !is_adam) || site.inputs() <= first) return false;
  c.counts_steps = is_step_number(site.in(site.inputs() - 1));
  const uint32_t shared = c.counts_steps ? 2 : 1;
  if (site.inputs() < first + shared) return false;
  const uint32_t lr = site.inputs() - shared, tensors = lr - first,
                 moments = is_adam                  ? 2
                           : is_sgd && tensors == 0 ? 0
                                                    : 1;
  if (tensors < moments || !moments_of(site, first, moments, tensors, c.moments)) return false;
  // Adam's bias correction and stochastic rounding need the step number.
  if (c.counts_steps != (is_adam || c.moments != MomentType::f32)) return false;
  if (!is_f32(site.in(0)) || !is_f32(site.in(lr)) || count(site.in(lr)) != 1) return false;
  c.count = count(site.in(0));
  c.rows = site.in(0).rank > 0 ? site.in(0).dims[0] : 1;
  c.has_velocity = is_sgd && moments == 1;
  c.nesterov = site.flag("nesterov");
  c.decoupled = update == "adamw";
  c.wide_step = c.counts_steps && site.in(lr + 1).dtype == HX_I64;
  c.momentum = site.number("momentum");
  c.beta1 = site.number("beta1", 0.9);
  c.beta2 = site.number("beta2", is_lion ? 0.99 : 0.999);
  c.epsilon = site.number("epsilon", 1e-8);
  c.weight_decay = site.number("weight_decay");
  return true;
}

double nanoseconds_of(const OptimizerContext& c) {
  return static_cast<double>(c.count) * (c.counts_steps ? 0.6 : c.has_velocity ? 0.4 : 0.3);
}
int64_t rows_of_blocks(const OptimizerContext& c) { return (c.rows + kMomentBlock - 1) / kMomentBlock; }
// Number of items that the parts divide: rows of blocks, or groups of 64 elements.
int64_t items_of(const OptimizerContext& c) {
  return c.moments == MomentType::coded ? rows_of_blocks(c) : (c.count + 63) / 64;
}

UpdateKind kind_of(std::string_view update) {
  return update == "sgd" ? UpdateKind::sgd : update == "lion" ? UpdateKind::lion : UpdateKind::adam;
}
Run step_of(UpdateKind kind) {
  return kind == UpdateKind::sgd ? isa().sgd : kind == UpdateKind::lion ? isa().lion : isa().adam;
}

}  // namespace

// Besides in_place (w' = w), the other outputs may share the memory of the moments they replace.
bool plan_optimizer(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<OptimizerContext>();
  if (!rule_of(site, site.op(), 2, *c) || !is_f32(site.in(1)) || !same_shape(site.in(1), site.in(0))) return false;
  c->parts = parts_for(nanoseconds_of(*c), items_of(*c));
  const UpdateKind kind = kind_of(site.op());
  answer(out, std::move(c), step_of(kind),
         kind == UpdateKind::sgd    ? "sgd"
         : kind == UpdateKind::lion ? "lion"
                                    : "adam")
      .in_place = 1;
  return true;
}

namespace {

constexpr uint32_t kMostBuffers = 16;  // Adam with scales: 9 inputs, 5 results, packed b, marks

// A step for a batch. If a has few non-zeros, the gradient is a sparse product.
struct BatchUpdate : ProductUpdateContext {
  SparseContext marks_of_a{};  // its buffers: a, b, none, the marks
  bool looks = false;
  uint32_t inputs = 0, outputs = 0;
  uint64_t behind_marks = 0;     // offset of blocks of the gradient, or of the packed b, in the workspace
  std::vector<uint32_t> phases;  // number of parts
};

// Each part packs a share of both operands.
void pack_factors(const BatchUpdate& c, void* const* buffers, uint32_t part) {
  auto* const to = static_cast<uint16_t*>(buffers[c.packed]);
  const auto* const a = static_cast<const float*>(buffers[1]);
  const auto* const b = static_cast<const float*>(buffers[2]);
  pack_bf16_part(*c.bf16, {a, 1, c.rows, c.rows, c.depth, false}, to, c.pack_parts, part);
  pack_bf16_part(*c.bf16, {b, 1, c.columns, c.columns, c.depth, true}, to + c.packed_a, c.pack_parts, part);
}

// Phases: mark the non-zeros of a (if it pays); packing of b, unless a has few; steps.
void run_batch(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const BatchUpdate*>(context);
  char* const workspace = static_cast<char*>(buffers[c.inputs + c.outputs]);
  void* const product[] = {buffers[1], buffers[2], nullptr, workspace};
  if (c.looks && phase == 0) return isa().sparse_build(c.marks, product, 0, part);
  const bool is_last = phase + 1 == c.phases.size();
  if (c.bf16 && !is_last) return pack_factors(c, buffers, part);
  const bool skips = c.looks && is_sparse(*c.marks, product);
  if (skips && !is_last) return;
  void* own[kMostBuffers];
  for (uint32_t i = 0; i < c.inputs + c.outputs; ++i) own[i] = buffers[i];
  own[c.packed] = workspace + c.behind_marks;
  own[c.packed + 1] = workspace;
  isa().update_product(static_cast<const ProductUpdateContext*>(&c), own, skips ? 2 : is_last, part);
}

// Plans a step with factors rounded to bf16. It does not search for zeros, since multiplying them is faster.
bool answer_rounded(std::unique_ptr<BatchUpdate> c, double products, hx_kernel& out) {
  c->bf16 = bf16_routines();
  c->pack_parts = bf16_pack_parts(std::max(c->rows, c->columns), c->depth);
  c->parts = parts_for(2 * products / product_costs::kBf16Rate + nanoseconds_of(c->rule),
                       (c->rows + kRoundedRows - 1) / kRoundedRows, product_costs::kPackedGrain);
  c->packed = c->inputs + c->outputs;
  c->phases = {c->pack_parts, c->parts};
  const uint64_t bytes_of_a = bf16_bytes(c->rows, c->depth), bytes = bytes_of_a + bf16_bytes(c->columns, c->depth);
  c->packed_a = static_cast<int64_t>(bytes_of_a / sizeof(uint16_t));
  const std::vector<uint32_t> phases = c->phases;
  hx_kernel& kernel = answer(out, std::move(c), run_batch, "bf16 product and update", phases);
  kernel.workspace = bytes;
  kernel.in_place = 1;
  return true;
}

// The result has the bits of a separate product and step: all dense kernels of AVX2 and AVX-512 add up to
// kMostUpdateDepth terms in order. Other instruction sets use oneDNN for these sizes, which adds in another order.
bool plan_batch(const Site& site, const OuterUpdateContext& one, int64_t samples, hx_kernel& out) {
  constexpr int64_t kLeastRows = 48, kLeastColumns = 64;  // smaller gradients stay in the cache
  const int64_t m = one.rows, n = one.columns;
  if (isa().vector < 8) return false;
  if (one.gradient || m < kLeastRows || n < kLeastColumns) return false;
  if (count(site.in(1)) != samples * m || count(site.in(2)) != samples * n) return false;
  Product gradient{1, m, n, samples, 1, m, n, 1, 0, 1, 2, 0, false, 0};
  gradient.bf16 = site.allows_bf16();
  const double products = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(samples);
  const bool rounds = suits_bf16_product(gradient, 2 * products);
  if (!rounds && (samples > kMostUpdateDepth || (site.allows_half() && half_product()))) return false;
  auto c = std::make_unique<BatchUpdate>();
  c->rule = one.rule, c->kind = one.kind;
  c->rows = m, c->columns = n, c->depth = samples;
  c->inputs = site.inputs(), c->outputs = site.outputs();
  if (rounds) return answer_rounded(std::move(c), products, out);
  const int64_t columns = packed_column_panel(isa().vector), panels = (n + columns - 1) / columns,
                rows = packed_row_panel(isa().vector);
  c->pack_parts = parts_for(static_cast<double>(n * samples) * 0.25, panels);
  const int64_t strips = c->rule.moments == MomentType::coded ? rows_of_blocks(c->rule) : (m + rows - 1) / rows;
  c->parts = parts_for(products / 45 + nanoseconds_of(c->rule), strips, 25000);
  c->packed = c->inputs + c->outputs;
  c->marks = &c->marks_of_a;
  c->marks_of_a.product = gradient;
  c->marks_of_a.workspace = 3;
  c->looks = plan_marks(c->marks_of_a);
  c->phases = {c->pack_parts, c->parts};
  uint64_t bytes = static_cast<uint64_t>(panels * columns * samples) * sizeof(float);
  if (c->looks) {
    c->phases.insert(c->phases.begin(), c->marks_of_a.build_parts);
    c->behind_marks = (static_cast<uint64_t>(kVerdictBytes + marks_bytes(c->marks_of_a)) + 63) & ~uint64_t{63};
    // A part's block: few rows, to stay in the L2 cache, but enough to reuse the rows of b.
    constexpr int64_t kBlockFloats = 1 << 15, kLeastBlock = 48;  // a multiple of all strips
    const int64_t strip = c->rule.moments == MomentType::coded ? kMomentBlock : rows,
                  own = (strips + c->parts - 1) / c->parts * strip;
    c->block_rows = std::min(own, std::max(kLeastBlock, kBlockFloats / n / kLeastBlock * kLeastBlock));
    bytes = std::max(bytes, static_cast<uint64_t>(c->parts * c->block_rows * n) * sizeof(float));
  }
  const std::vector<uint32_t> phases = c->phases;
  bytes += c->behind_marks;
  hx_kernel& kernel = answer(out, std::move(c), run_batch, "product and update", phases);
  kernel.workspace = bytes;
  kernel.in_place = 1;
  return true;
}

}  // namespace

// w [m, n], a [..., m], b [..., n], moments [m, n]..., lr, step?
bool plan_update_outer(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<OuterUpdateContext>();
  const std::string update = site.text("update"), input_gradient = site.text("input_gradient");
  if (site.inputs() < 4 || site.in(0).rank != 2 || !is_f32(site.in(1)) || !is_f32(site.in(2))) return false;
  if (!rule_of(site, update, 3, c->rule)) return false;
  c->rows = site.in(0).dims[0];
  c->columns = site.in(0).dims[1];
  c->kind = kind_of(update);
  c->gradient = !input_gradient.empty();
  c->active = input_gradient == "active";
  const int64_t samples = count(site.in(1)) / c->rows;
  if (samples > 1) return plan_batch(site, *c, samples, out);
  if (count(site.in(1)) != c->rows || count(site.in(2)) != c->columns) return false;
  c->parts = parts_for(nanoseconds_of(c->rule), c->rule.moments == MomentType::coded ? items_of(c->rule) : c->rows);
  answer(out, std::move(c), isa().update_outer, "outer product and update").in_place = 1;
  return true;
}

HM_PLANS(optimizer, {"update_outer", plan_update_outer}, {"sgd", plan_optimizer}, {"adam", plan_optimizer},
         {"adamw", plan_optimizer}, {"lion", plan_optimizer})

}  // namespace harmonics::cpu
