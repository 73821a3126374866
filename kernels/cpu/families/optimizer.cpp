// Steps of SGD, Adam, AdamW and Lion, alone and with the product that is their gradient. For batches that product is in
// update_product.cpp.
#include "../family.hpp"
#include "../optimizer.hpp"

#ifdef HM_ISA

#include "coded_adam.hpp"
#include "update_rules.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Calls `run` with the first row and the number of rows of each row of blocks in a part.
template <typename Run>
HM_INLINE void for_blocks(int64_t rows, uint32_t parts, uint32_t part, Run run) {
  const Range blocks = share((rows + kBlock - 1) / kBlock, parts, part);
  for (int64_t i = blocks.begin * kBlock; i < blocks.end * kBlock && i < rows; i += kBlock)
    run(i, rows - i < kBlock ? rows - i : kBlock);
}

// w, g, moments..., scales..., lr, [step] -> w, moments..., scales...
template <typename Types>
HM_INLINE void update_part(const OptimizerContext& c, void* const* buffers, uint32_t part) {
  using Rule = typename Types::Rule;
  using Moment = typename Types::Moment;
  const FlushDenormals flush;
  constexpr int kLr = 2 + Types::kTensors;
  const int kOut = kLr + (c.counts_steps ? 2 : 1);
  const uint32_t number = step_number(c, buffers[kLr + 1]);
  const float* g = static_cast<const float*>(buffers[1]);
  const Rule rule(c, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  if constexpr (Types::kCoded) {
    const int64_t n = c.count / c.rows;
    const CodedWeights weights = coded_weights<Rule>(buffers, 2, kOut, n, number);
    for_blocks(
        c.rows, c.parts, part, [&](int64_t row, int64_t rows) __attribute__((always_inline)) {
          const auto load_from = [&](int64_t r, int64_t j, int64_t some) __attribute__((always_inline)) {
            return load_some(g + (row + r) * n + j, some);
          };
          update_blocks(rule, weights, row, rows, 0, n, LoadedGradient{load_from});
        });
  } else {
    Elements<Rule, Moment> all = elements_of<Rule, Moment>(buffers, 2, kOut, RandomBits(number));
    all.g = g;
    // Parts are multiples of vectors.
    const Range vectors = share((c.count + kWidth - 1) / kWidth, c.parts, part);
    const int64_t end = vectors.end * kWidth < c.count ? vectors.end * kWidth : c.count;
    all.template steps<true>(rule, vectors.begin * kWidth, end);
  }
}
template <UpdateKind kKind>
void update_kind(const void* context, void* const* buffers, uint32_t part) {
  const auto& c = *static_cast<const OptimizerContext*>(context);
  with_step_types(
      kKind, c, [&](auto types) __attribute__((always_inline)) { update_part<decltype(types)>(c, buffers, part); });
}

// Updates one row of w for a single sample, with the gradient x b. Returns the sum of w b for the old w.
template <bool kGradient, typename Rule, typename Moment>
HM_INLINE float update_row(const Rule& rule, const Elements<Rule, Moment>& row, float x, const float* b, int64_t n) {
  vf sum{};
  const auto step = [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
    const vf weight = load_some(row.w + j, lanes), y = load_some(b + j, lanes);
    if (kGradient) sum = fma(weight, y, sum);
    row.fetch(j);
    row.step(rule, j, lanes, weight, x * y);
  };
  int64_t j = 0;
  if constexpr (kTogether > 1)
    for (; j + kTogether * kWidth <= n; j += kTogether * kWidth) {
      for (int64_t v = 0; v < kTogether; ++v) row.fetch(j + v * kWidth);
      row.step_together(
          rule, j, [&](int64_t v, vf weight) __attribute__((always_inline)) {
            const vf y = load(b + j + v * kWidth);
            if (kGradient) sum = fma(weight, y, sum);
            return x * y;
          });
    }
  for (; j + kWidth <= n; j += kWidth) step(j, kWidth);
  if (j < n) step(j, n - j);
  return kGradient ? sum_of(sum) : 0;
}

// Rows whose length is not a multiple of a vector would make vectors cross cache lines in every operand. They are
// updated in blocks of rows that are a multiple, and whose gradient stays in the L1 cache.
constexpr int64_t kBlockFloats = 2048;
HM_INLINE int64_t rows_of_block(int64_t columns) {
  int64_t rows = 1;
  while (rows * columns % kWidth != 0) rows *= 2;
  return rows == 1 ? 1 : kBlockFloats / (rows * columns) * rows;  // 0: the rows are too long
}

// Stores the gradient x b of one row in g; returns the sum of w b.
template <bool kGradient>
HM_INLINE float multiply_row(const float* w, float x, const float* b, float* g, int64_t n) {
  vf sum{};
  const auto step = [&](int64_t j, int64_t lanes) __attribute__((always_inline)) {
    const vf y = load_some(b + j, lanes);
    if (kGradient) sum = fma(load_some(w + j, lanes), y, sum);
    store_some(g + j, x * y, lanes);
  };
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth) step(j, kWidth);
  if (j < n) step(j, n - j);
  return kGradient ? sum_of(sum) : 0;
}

template <bool kGradient, typename Types>
HM_INLINE void update_rows(const OuterUpdateContext& c, void* const* buffers, uint32_t part) {
  using Rule = typename Types::Rule;
  using Moment = typename Types::Moment;
  const FlushDenormals flush;
  constexpr int kLr = 3 + Types::kTensors;
  const int kOut = kLr + (c.rule.counts_steps ? 2 : 1);
  const int64_t columns = c.columns;
  const float *a = static_cast<const float*>(buffers[1]), *b = static_cast<const float*>(buffers[2]);
  float* gradient = kGradient ? static_cast<float*>(buffers[kOut + 1 + Types::kTensors]) : nullptr;
  const uint32_t number = step_number(c.rule, buffers[kLr + 1]);
  const Rule rule(c.rule, *static_cast<const float*>(buffers[kLr]), buffers[kLr + 1]);
  const auto keep_sum = [&](int64_t i, float sum) __attribute__((always_inline)) {
    if (kGradient) gradient[i] = c.active && a[i] <= 0 ? 0 : sum;
  };
  if constexpr (Types::kCoded) {
    const CodedWeights weights = coded_weights<Rule>(buffers, 3, kOut, columns, number);
    for_blocks(
        c.rows, c.parts, part, [&](int64_t row, int64_t rows) __attribute__((always_inline)) {
          vf sums[kBlock] = {};
          update_blocks(rule, weights, row, rows, 0, columns, OuterGradient<kGradient>{a + row, b, sums, {}});
          if (kGradient)
            for (int64_t r = 0; r < rows; ++r) keep_sum(row + r, sum_of(sums[r]));
        });
  } else {
    const Elements<Rule, Moment> all = elements_of<Rule, Moment>(buffers, 3, kOut, RandomBits(number));
    const int64_t each = rows_of_block(columns);
    if (each <= 1) {
      const Range rows = share(c.rows, c.parts, part);
      for (int64_t i = rows.begin; i < rows.end; ++i)
        keep_sum(i, update_row<kGradient>(rule, from_place(all, i * columns, nullptr), a[i], b, columns));
      return;
    }
    alignas(64) float block[kBlockFloats];
    const Range blocks = share((c.rows + each - 1) / each, c.parts, part);
    for (int64_t row = blocks.begin * each; row < blocks.end * each && row < c.rows; row += each) {
      const int64_t end = row + each < c.rows ? row + each : c.rows, at = row * columns, count = (end - row) * columns;
      for (int64_t i = row; i < end; ++i)
        keep_sum(i, multiply_row<kGradient>(all.w + i * columns, a[i], b, block + (i - row) * columns, columns));
      from_place(all, at, block).template steps<true>(rule, 0, count);
    }
  }
}

}  // namespace

void sgd(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  update_kind<UpdateKind::sgd>(context, buffers, part);
}
void adam(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  update_kind<UpdateKind::adam>(context, buffers, part);
}
void lion(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  update_kind<UpdateKind::lion>(context, buffers, part);
}

// w, a, b, moments..., scales..., lr, [step] -> w, moments..., scales..., gradient?
void update_outer(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const OuterUpdateContext*>(context);
  with_step_types(
      c.kind, c.rule, [&](auto types) __attribute__((always_inline)) {
        c.gradient ? update_rows<true, decltype(types)>(c, buffers, part)
                   : update_rows<false, decltype(types)>(c, buffers, part);
      });
}

}  // namespace harmonics::cpu::HM_ISA

#else

HM_VECTOR_CODE(sgd)
HM_VECTOR_CODE(adam)
HM_VECTOR_CODE(lion)
HM_VECTOR_CODE(update_outer)

namespace harmonics::cpu {

double nanoseconds_of(const OptimizerContext& c) {
  return static_cast<double>(c.count) * (c.counts_steps ? 0.6 : c.has_velocity ? 0.4 : 0.3);
}

namespace {

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
  c.between = updates_between_products();
  return true;
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
  return kind == UpdateKind::sgd ? chosen::sgd() : kind == UpdateKind::lion ? chosen::lion() : chosen::adam();
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
  if (samples > 1) return plan_batch_update(site, *c, samples, out);
  if (count(site.in(1)) != c->rows || count(site.in(2)) != c->columns) return false;
  c->parts = parts_for(nanoseconds_of(c->rule), c->rule.moments == MomentType::coded ? items_of(c->rule) : c->rows);
  answer(out, std::move(c), chosen::update_outer(), "outer product and update").in_place = 1;
  return true;
}

HM_PLANS(optimizer, {"update_outer", plan_update_outer}, {"sgd", plan_optimizer}, {"adam", plan_optimizer},
         {"adamw", plan_optimizer}, {"lion", plan_optimizer})

}  // namespace harmonics::cpu

#endif
