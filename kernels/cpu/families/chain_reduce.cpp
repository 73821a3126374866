// Fused chain and reduction: reduces the chain's last result as it is computed. The order of summation equals that of a
// separate reduction.
#include "../family.hpp"

#include "../elementwise.hpp"
#include "../reduce.hpp"

namespace harmonics::cpu {
namespace {

// Stage 0 of `stages` reads the chain instead of memory. Along the last axis, a part takes whole rows. Along other
// axes, a unit reduces a group of kReduceGroup rows in a slice of the columns, and a second phase combines the groups.
struct ChainReduceContext {
  ChainContext chain;
  uint32_t reduced;  // register
  ReduceContext stages;
  int64_t groups;              // per chunk, at most
  uint32_t slices;             // of the columns
  uint32_t parts, join_parts;  // join_parts 0: no second phase, the groups are the results
  uint32_t workspace;          // buffer
  int64_t partials;            // offset of the groups' partial results in the workspace, floats
};

constexpr int64_t kSliceGranule = 64;

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "chain_run.hpp"
#include "reductions.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// reduce_row() for a row that arrives in pieces; all pieces but the last are multiples of four vectors.
template <typename Rule>
class RowInPieces {
 public:
  HM_INLINE void take(const float* x, int64_t n) {
    vf a = sums_[0], b = sums_[1], c = sums_[2], d = sums_[3];
    int64_t i = 0;
    for (; n - i >= 4 * kWidth; i += 4 * kWidth) {
      a = Rule::join(a, load(x + i));
      b = Rule::join(b, load(x + i + kWidth));
      c = Rule::join(c, load(x + i + 2 * kWidth));
      d = Rule::join(d, load(x + i + 3 * kWidth));
      if (++in_group_ < kGroup) continue;
      end_group(a, b, c, d);
      a = b = c = d = splat(Rule::kStart);
    }
    sums_[0] = a, sums_[1] = b, sums_[2] = c, sums_[3] = d;
    if (i == n) return;
    end_group(a, b, c, d);
    for (; i + kWidth <= n; i += kWidth) block_ = Rule::join(block_, load(x + i));
    if (i < n) block_ = Rule::join(block_, first(load_part(x + i, n - i), n - i, splat(Rule::kStart)));
  }

  HM_INLINE float total() {
    end_group(sums_[0], sums_[1], sums_[2], sums_[3]);
    return join_halves(
        Rule::join(total_, block_), [](auto a, auto b) __attribute__((always_inline)) { return Rule::join(a, b); });
  }

 private:
  HM_INLINE void end_group(vf a, vf b, vf c, vf d) {
    if (in_group_ == 0) return;
    in_group_ = 0;
    block_ = Rule::join(block_, Rule::join(Rule::join(a, b), Rule::join(c, d)));
    if (++groups_ < kGroup) return;
    groups_ = 0;
    total_ = Rule::join(total_, block_);
    block_ = splat(Rule::kStart);
  }

  vf sums_[4] = {splat(Rule::kStart), splat(Rule::kStart), splat(Rule::kStart), splat(Rule::kStart)};
  vf block_ = splat(Rule::kStart), total_ = splat(Rule::kStart);
  int64_t in_group_ = 0, groups_ = 0;
};

HM_INLINE const float* piece(const ChainReduceContext& c, ChainRun& run, int64_t start, int64_t n) {
  run.piece(start, n);
  return reinterpret_cast<const float*>(run.at(c.reduced));
}
HM_INLINE float* results(const ChainReduceContext& c, void* const* buffers) {
  const ReduceStage& s = c.stages.stage[0];
  return static_cast<float*>(buffers[s.to]) + s.to_offset;
}
HM_INLINE float* partials(const ChainReduceContext& c, void* const* buffers) {
  return c.join_parts ? static_cast<float*>(buffers[c.workspace]) + c.partials : results(c, buffers);
}

// Returns the rows of a chunk.
HM_INLINE Range rows_of(const ReduceStage& s, int64_t chunk) {
  return {s.rows * chunk / s.chunks, s.rows * (chunk + 1) / s.chunks};
}

// Reduces along the last axis.
template <typename Rule>
void reduce_runs(const ChainReduceContext& c, void* const* buffers, uint32_t part) {
  const ReduceStage& s = c.stages.stage[0];
  ChainRun run(c.chain, buffers);
  float* to = results(c, buffers);
  const Range items = share(s.outer * s.chunks, c.parts, part);
  if (s.chunks == 1 && 2 * s.rows <= c.chain.block) {  // many short rows at once
    const int64_t most = c.chain.block / s.rows;
    for (int64_t o = items.begin; o < items.end; o += most) {
      const int64_t n = items.end - o < most ? items.end - o : most;
      const float* x = piece(c, run, o * s.rows, n * s.rows);
      for (int64_t i = 0; i < n; ++i) to[o + i] = reduce_row<Rule>(x + i * s.rows, s.rows);
    }
    return;
  }
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Range own = rows_of(s, item % s.chunks);
    RowInPieces<Rule> row;
    for (int64_t i = own.begin; i < own.end; i += c.chain.block) {
      const int64_t n = own.end - i < c.chain.block ? own.end - i : c.chain.block;
      row.take(piece(c, run, item / s.chunks * s.rows + i, n), n);
    }
    to[item] = row.total();
  }
}

// Combines `rows` rows of n floats with y.
template <typename Rule>
HM_INLINE void join_rows(float* y, const float* x, int64_t rows, int64_t stride, int64_t n) {
  int64_t j = 0;
  for (; j + 4 * kWidth <= n; j += 4 * kWidth) {
    vf a = load(y + j), b = load(y + j + kWidth), c = load(y + j + 2 * kWidth), d = load(y + j + 3 * kWidth);
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = x + r * stride + j;
      a = Rule::join(a, load(from));
      b = Rule::join(b, load(from + kWidth));
      c = Rule::join(c, load(from + 2 * kWidth));
      d = Rule::join(d, load(from + 3 * kWidth));
    }
    store(y + j, a), store(y + j + kWidth, b), store(y + j + 2 * kWidth, c), store(y + j + 3 * kWidth, d);
  }
  for (; j < n; j += kWidth) {
    const int64_t lanes = lanes_at(j, n);
    vf a = load_some(y + j, lanes);
    for (int64_t r = 0; r < rows; ++r) a = Rule::join(a, load_some(x + r * stride + j, lanes));
    store_some(y + j, a, lanes);
  }
}

template <typename Rule>
HM_INLINE void begin_row(float* y, int64_t n) {
  for (int64_t j = 0; j < n; j += kWidth) store_some(y + j, splat(Rule::kStart), lanes_at(j, n));
}

// Reduces groups of rows along an axis before the last.
template <typename Rule>
void reduce_groups(const ChainReduceContext& c, void* const* buffers, uint32_t part) {
  const ReduceStage& s = c.stages.stage[0];
  ChainRun run(c.chain, buffers);
  const int64_t granules = (s.inner + kSliceGranule - 1) / kSliceGranule;
  const int64_t groups = s.outer * s.chunks * c.groups;
  const Range units = share(groups * c.slices, c.parts, part);
  for (int64_t u = units.begin; u < units.end; ++u) {
    const int64_t group = u % groups, item = group / c.groups, outer = item / s.chunks;
    const Range slice = share(granules, c.slices, static_cast<uint32_t>(u / groups)),
                chunk = rows_of(s, item % s.chunks);
    const int64_t j0 = slice.begin * kSliceGranule,
                  j1 = slice.end * kSliceGranule < s.inner ? slice.end * kSliceGranule : s.inner;
    const int64_t r0 = chunk.begin + group % c.groups * kGroup, r1 = r0 + kGroup < chunk.end ? r0 + kGroup : chunk.end;
    float* to = partials(c, buffers) + group * s.inner;
    begin_row<Rule>(to + j0, j1 - j0);
    const int64_t most = c.chain.block / s.inner;  // rows at once
    for (int64_t r = r0; r < r1;) {
      const int64_t start = (outer * s.rows + r) * s.inner;
      if (c.slices == 1 && most > 0) {
        const int64_t rows = r1 - r < most ? r1 - r : most;
        join_rows<Rule>(to, piece(c, run, start, rows * s.inner), rows, s.inner, s.inner);
        r += rows;
        continue;
      }
      for (int64_t j = j0; j < j1; j += c.chain.block) {
        const int64_t n = j1 - j < c.chain.block ? j1 - j : c.chain.block;
        join_rows<Rule>(to + j, piece(c, run, start + j, n), 1, 0, n);
      }
      ++r;
    }
  }
}

// Combines groups into blocks, and blocks into the chunk's result.
template <typename Rule>
void join_groups(const ChainReduceContext& c, void* const* buffers, uint32_t part) {
  const ReduceStage& s = c.stages.stage[0];
  const int64_t vectors = (s.inner + kWidth - 1) / kWidth;
  const Range units = share(s.outer * s.chunks * vectors, c.join_parts, part);
  for (int64_t u = units.begin; u < units.end; ++u) {
    const int64_t item = u / vectors, j = u % vectors * kWidth, lanes = lanes_at(j, s.inner);
    const Range rows = rows_of(s, item % s.chunks);
    const int64_t groups = (rows.end - rows.begin + kGroup - 1) / kGroup;
    const float* from = partials(c, buffers) + item * c.groups * s.inner + j;
    vf total = splat(Rule::kStart);
    for (int64_t g = 0; g < groups;) {
      const int64_t end = groups - g < kGroup ? groups : g + kGroup;
      vf block = splat(Rule::kStart);
      for (; g < end; ++g) block = Rule::join(block, load_some(from + g * s.inner, lanes));
      total = Rule::join(total, block);
    }
    store_some(results(c, buffers) + item * s.inner + j, total, lanes);
  }
}

template <typename Rule>
void reduce_chain(const ChainReduceContext& c, void* const* buffers, uint32_t phase, uint32_t part) {
  if (phase == 1) return join_groups<Rule>(c, buffers, part);
  c.stages.stage[0].inner == 1 ? reduce_runs<Rule>(c, buffers, part) : reduce_groups<Rule>(c, buffers, part);
}

}  // namespace

void chain_reduce(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const ChainReduceContext*>(context);
  const uint32_t own = c.join_parts ? 2 : 1;
  if (phase >= own) return reduce(&c.stages, buffers, phase - own + 1, part);
  switch (c.stages.reduction) {
    case Reduction::sum:
      return reduce_chain<Sum>(c, buffers, phase, part);
    case Reduction::product:
      return reduce_chain<Product>(c, buffers, phase, part);
    case Reduction::maximum:
      return reduce_chain<Maximum>(c, buffers, phase, part);
    case Reduction::minimum:
      return reduce_chain<Minimum>(c, buffers, phase, part);
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include "../chain_builder.hpp"

HM_VECTOR_CODE(chain_reduce)

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
  hx_kernel& kernel = answer<ChainReduceContext>(out, std::move(c), chosen::chain_reduce(), "fused reduce", parts);
  kernel.workspace = static_cast<uint64_t>(floats) * sizeof(float);
  kernel.in_place = in_place;
  return true;
}

}  // namespace

HM_PLANS(chain_reduce, {"fused_reduce", plan_fused_reduce})

}  // namespace harmonics::cpu

#endif
