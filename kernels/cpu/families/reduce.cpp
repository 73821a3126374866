// Reductions, scans and searches along axes.
#include "../family.hpp"
#include "../reduce.hpp"

namespace harmonics::cpu {
namespace {

// An axis of `size` between `outer` and `inner`.
struct AxisContext {
  int64_t outer, size, inner;
  uint32_t dtype, parts;
  bool largest;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "reductions.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Reduces `rows` rows of n <= kVectors * kWidth columns.
template <typename Rule, int kVectors, bool kFull>
HM_INLINE void reduce_columns(const float* x, int64_t rows, int64_t stride, float* y, int64_t n) {
  vf total[kVectors], block[kVectors], group[kVectors];
  for (int v = 0; v < kVectors; ++v) total[v] = splat(Rule::kStart);
  for (int64_t r = 0; r < rows;) {
    const int64_t block_end = rows - r < kBlockRows ? rows : r + kBlockRows;
    for (int v = 0; v < kVectors; ++v) block[v] = splat(Rule::kStart);
    while (r < block_end) {
      for (int v = 0; v < kVectors; ++v) group[v] = splat(Rule::kStart);
      for (int64_t k = 0; k < kGroup && r < block_end; ++k, ++r)
        for (int v = 0; v < kVectors; ++v)
          group[v] = Rule::join(group[v], kFull ? load(x + r * stride + v * kWidth) : load_part(x + r * stride, n));
      for (int v = 0; v < kVectors; ++v) block[v] = Rule::join(block[v], group[v]);
    }
    for (int v = 0; v < kVectors; ++v) total[v] = Rule::join(total[v], block[v]);
  }
  for (int v = 0; v < kVectors; ++v) kFull ? store(y + v * kWidth, total[v]) : store_part(y, total[v], n);
}

constexpr int64_t kColumns = 4 * kWidth;

template <typename Rule>
void reduce_stage(const ReduceStage& s, const float* x, float* y, uint32_t part) {
  const int64_t blocks = s.inner == 1 ? 1 : (s.inner + kColumns - 1) / kColumns;
  const Range items = share(s.outer * s.chunks * blocks, s.parts, part);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t block = item % blocks, chunk = item / blocks % s.chunks, o = item / blocks / s.chunks;
    const int64_t begin = s.rows * chunk / s.chunks, rows = s.rows * (chunk + 1) / s.chunks - begin;
    const float* from = x + (o * s.rows + begin) * s.inner;
    float* to = y + (o * s.chunks + chunk) * s.inner;
    if (s.inner == 1) {
      *to = reduce_row<Rule>(from, rows);
      continue;
    }
    int64_t j = block * kColumns;
    const int64_t end = s.inner - j < kColumns ? s.inner : j + kColumns;
    if (end - j == kColumns) {
      reduce_columns<Rule, 4, true>(from + j, rows, s.inner, to + j, kColumns);
      continue;
    }
    for (; j + kWidth <= end; j += kWidth) reduce_columns<Rule, 1, true>(from + j, rows, s.inner, to + j, kWidth);
    if (j < end) reduce_columns<Rule, 1, false>(from + j, rows, s.inner, to + j, end - j);
  }
}

// Reduces element types without vector code, in index order.
template <typename T, typename Join>
void reduce_plainly(const ReduceStage& s, const void* from, void* to, T start, uint32_t part, Join join) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  const Range items = share(s.outer * s.inner, s.parts, part);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const T* lane = x + item / s.inner * s.rows * s.inner + item % s.inner;
    T total = start;
    for (int64_t r = 0; r < s.rows; ++r) total = join(total, lane[r * s.inner]);
    y[item] = total;
  }
}
template <typename T, typename Wrapping>
void reduce_type(Reduction reduction, const ReduceStage& s, const void* x, void* y, T least, T most, uint32_t part) {
  switch (reduction) {
    case Reduction::sum:
      return reduce_plainly<Wrapping>(s, x, y, 0, part, [](Wrapping a, Wrapping b) { return a + b; });
    case Reduction::product:
      return reduce_plainly<Wrapping>(s, x, y, 1, part, [](Wrapping a, Wrapping b) { return a * b; });
    case Reduction::maximum:
      return reduce_plainly<T>(s, x, y, least, part, [](T a, T b) { return a != a || a > b ? a : b; });
    case Reduction::minimum:
      return reduce_plainly<T>(s, x, y, most, part, [](T a, T b) { return a != a || a < b ? a : b; });
  }
}

// Whether b replaces the earlier a. The first of equal values stays; NaN replaces numbers and stays.
template <typename T>
HM_INLINE bool beats(T b, T a, bool largest) {
  if (a != a || b != b) return a == a;
  return largest ? b > a : b < a;
}
// Returns the first index of the largest or smallest element of a row.
template <bool kLargest>
HM_INLINE int64_t row_extreme(const float* x, int64_t n) {
  const auto at = [&](int64_t i) __attribute__((always_inline)) {
    const vf v = first(load_some(x + i, lanes_at(i, n)), n - i, splat(kLargest ? -kInfinity : kInfinity));
    return kLargest ? v : -v;
  };
  vf best = splat(-kInfinity);
  vi nan{};
  for (int64_t i = 0; i < n; i += kWidth) {
    const vf v = at(i);
    nan |= v != v;
    best = vmax(v, best);
  }
  const vf extreme = splat(max_of(best));
  for (int64_t i = 0; i < n; i += kWidth) {
    const vf v = at(i);
    if (const uint32_t bits = mask_bits(any(nan) ? v != v : v == extreme)) return i + __builtin_ctz(bits);
  }
  return 0;  // not reached
}
void find_row_extremes(const AxisContext& c, const float* x, int64_t* y, Range rows) {
  for (int64_t r = rows.begin; r < rows.end; ++r)
    y[r] = c.largest ? row_extreme<true>(x + r * c.size, c.size) : row_extreme<false>(x + r * c.size, c.size);
}
template <typename T>
void find_extremes(const AxisContext& c, const void* from, int64_t* y, Range lanes) {
  const T* x = static_cast<const T*>(from);
  for (int64_t l = lanes.begin; l < lanes.end; ++l) {
    const T* lane = x + l / c.inner * c.size * c.inner + l % c.inner;
    int64_t best = 0;
    for (int64_t k = 1; k < c.size; ++k)
      if (beats(lane[k * c.inner], lane[best * c.inner], c.largest)) best = k;
    y[l] = best;
  }
}
template <typename T>
void running_sums(const AxisContext& c, const void* from, void* to, Range lanes) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  for (int64_t l = lanes.begin; l < lanes.end; ++l) {
    const int64_t at = l / c.inner * c.size * c.inner + l % c.inner;
    T sum = 0;
    for (int64_t k = 0; k < c.size; ++k) y[at + k * c.inner] = sum += x[at + k * c.inner];
  }
}

}  // namespace

void reduce(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const ReduceContext*>(context);
  const ReduceStage& s = c.stage[phase];
  const void* from = buffers[s.from];
  void* to = buffers[s.to];
  if (c.dtype == HX_F64)
    return reduce_type<double, double>(c.reduction, s, from, to, -__builtin_inf(), __builtin_inf(), part);
  if (c.dtype == HX_I32) return reduce_type<int32_t, uint32_t>(c.reduction, s, from, to, INT32_MIN, INT32_MAX, part);
  if (c.dtype == HX_I64) return reduce_type<int64_t, uint64_t>(c.reduction, s, from, to, INT64_MIN, INT64_MAX, part);
  const float* x = static_cast<const float*>(from) + s.from_offset;
  float* y = static_cast<float*>(to) + s.to_offset;
  switch (c.reduction) {
    case Reduction::sum:
      return reduce_stage<Sum>(s, x, y, part);
    case Reduction::product:
      return reduce_stage<Product>(s, x, y, part);
    case Reduction::maximum:
      return reduce_stage<Maximum>(s, x, y, part);
    case Reduction::minimum:
      return reduce_stage<Minimum>(s, x, y, part);
  }
}

void arg_extreme(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const AxisContext*>(context);
  const Range lanes = share(c.outer * c.inner, c.parts, part);
  int64_t* y = static_cast<int64_t*>(buffers[1]);
  if (c.dtype == HX_F32 && c.inner == 1)
    find_row_extremes(c, static_cast<const float*>(buffers[0]), y, lanes);
  else if (c.dtype == HX_F32)
    find_extremes<float>(c, buffers[0], y, lanes);
  else if (c.dtype == HX_F64)
    find_extremes<double>(c, buffers[0], y, lanes);
  else if (c.dtype == HX_I32)
    find_extremes<int32_t>(c, buffers[0], y, lanes);
  else
    find_extremes<int64_t>(c, buffers[0], y, lanes);
}

void cumsum(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const AxisContext*>(context);
  const Range lanes = share(c.outer * c.inner, c.parts, part);
  if (c.dtype == HX_F32)
    running_sums<float>(c, buffers[0], buffers[1], lanes);
  else if (c.dtype == HX_F64)
    running_sums<double>(c, buffers[0], buffers[1], lanes);
  else if (c.dtype == HX_I32)
    running_sums<uint32_t>(c, buffers[0], buffers[1], lanes);
  else
    running_sums<uint64_t>(c, buffers[0], buffers[1], lanes);
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include <utility>

HM_VECTOR_CODE(arg_extreme)
HM_VECTOR_CODE(cumsum)

namespace harmonics::cpu {
namespace {

bool is_number(uint32_t dtype) { return dtype == HX_F32 || dtype == HX_F64 || dtype == HX_I32 || dtype == HX_I64; }

struct Group {
  int64_t size;
  bool reduced;
};
// Merges axes into alternating groups of kept and reduced ones.
std::vector<Group> groups_of(const hx_type& x, const std::vector<int64_t>& axes) {
  std::vector<Group> groups;
  for (uint32_t i = 0; i < x.rank; ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (x.dims[i] == 1) continue;
    if (groups.empty() || groups.back().reduced != reduced) groups.push_back({1, reduced});
    groups.back().size *= x.dims[i];
  }
  return groups;
}

constexpr int64_t kColumnBlock = 64;
constexpr double kNanoseconds = 0.1;  // per element

// Divides rows into chunks if there are too few results to keep the parts busy.
int64_t chunks_for(int64_t outer, int64_t rows, int64_t inner) {
  const int64_t items = outer * ((inner + kColumnBlock - 1) / kColumnBlock);
  const uint32_t wanted = sums_for(kNanoseconds * static_cast<double>(outer * rows * inner), INT32_MAX);
  if (items * 2 >= wanted) return 1;
  return std::clamp<int64_t>(wanted / items, 1, std::max<int64_t>(1, rows / 64));
}

ReduceStage stage_of(int64_t outer, int64_t rows, int64_t inner, int64_t chunks) {
  ReduceStage s{};
  s.outer = outer;
  s.rows = rows;
  s.inner = inner;
  s.chunks = chunks;
  s.parts = parts_for(kNanoseconds * static_cast<double>(outer * rows * inner),
                      outer * chunks * ((inner + kColumnBlock - 1) / kColumnBlock));
  return s;
}

}  // namespace

// A stage with several chunks is followed by a stage that combines them.
bool plan_stages(const hx_type& x, const std::vector<int64_t>& axes, ReduceContext& c) {
  std::vector<Group> groups = groups_of(x, axes);
  const auto last_reduced = [&] {
    return std::find_if(groups.rbegin(), groups.rend(), [](const Group& g) { return g.reduced; });
  };
  if (last_reduced() == groups.rend()) groups.push_back({1, true});
  for (auto it = last_reduced(); it != groups.rend(); it = last_reduced()) {
    int64_t outer = 1, inner = 1;
    for (auto g = groups.begin(); g != it.base() - 1; ++g) outer *= g->size;
    for (auto g = it.base(); g != groups.end(); ++g) inner *= g->size;
    const int64_t chunks = c.dtype == HX_F32 ? chunks_for(outer, it->size, inner) : 1;
    if (c.stages + (chunks > 1 ? 2 : 1) > HX_MAX_PHASES) return false;
    c.stage[c.stages++] = stage_of(outer, it->size, inner, chunks);
    if (chunks > 1) c.stage[c.stages++] = stage_of(outer, chunks, inner, 1);
    it->size = 1;
    it->reduced = false;
  }
  return true;
}

int64_t place_stages(ReduceContext& c, uint32_t from, uint32_t to, uint32_t workspace) {
  int64_t floats = 0;
  for (uint32_t i = 0; i < c.stages; ++i) {
    ReduceStage& s = c.stage[i];
    s.from = i == 0 ? from : workspace;
    s.from_offset = i == 0 ? 0 : c.stage[i - 1].to_offset;
    s.to = i + 1 == c.stages ? to : workspace;
    if (s.to == to) continue;
    s.to_offset = floats;
    floats += (s.outer * s.chunks * s.inner + 15) & ~int64_t{15};
  }
  return floats;
}

std::optional<Reduction> reduction_of(std::string_view name) {
  constexpr std::pair<std::string_view, Reduction> rows[] = {{"reduce_sum", Reduction::sum},
                                                             {"reduce_max", Reduction::maximum},
                                                             {"reduce_min", Reduction::minimum},
                                                             {"reduce_prod", Reduction::product}};
  for (const auto& [text, reduction] : rows)
    if (text == name) return reduction;
  return std::nullopt;
}

namespace {

bool plan_reduce(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!is_number(x.dtype) || x.dtype != site.out().dtype) return false;
  auto c = std::make_unique<ReduceContext>();
  c->dtype = x.dtype;
  c->reduction = *reduction_of(site.op());
  if (!plan_stages(x, site.integers("axes"), *c)) return false;
  if (c->dtype != HX_F32 && c->stages > 1) return false;

  const int64_t workspace = place_stages(*c, 0, 1, 2);
  std::vector<uint32_t> parts;
  for (uint32_t i = 0; i < c->stages; ++i) parts.push_back(c->stage[i].parts);
  answer(out, std::move(c), chosen::reduce(), "reduce", parts).workspace = static_cast<uint64_t>(workspace) * 4;
  return true;
}

std::unique_ptr<AxisContext> axis_context(const Site& site, double nanoseconds) {
  const hx_type& x = site.in(0);
  const auto axis = static_cast<size_t>(site.integer("axis"));
  auto c = std::make_unique<AxisContext>();
  c->dtype = x.dtype;
  c->size = x.dims[axis];
  c->inner = strides(x)[axis];
  c->outer = count(x) / (c->size * c->inner);
  c->parts = parts_for(nanoseconds * static_cast<double>(count(x)), c->outer * c->inner);
  return c;
}

bool plan_arg_extreme(const Site& site, hx_kernel& out) {
  if (!is_number(site.in(0).dtype) || site.out().dtype != HX_I64) return false;
  auto c = axis_context(site, 1.0);
  c->largest = site.op() == "argmax";
  answer(out, std::move(c), chosen::arg_extreme(), site.op() == "argmax" ? "argmax" : "argmin");
  return true;
}

bool plan_cumsum(const Site& site, hx_kernel& out) {
  if (!is_number(site.in(0).dtype)) return false;
  auto c = axis_context(site, 1.0);
  answer(out, std::move(c), chosen::cumsum(), "cumsum");
  return true;
}

}  // namespace

HM_PLANS(reduce, {"reduce_sum", plan_reduce}, {"reduce_max", plan_reduce}, {"reduce_min", plan_reduce},
         {"reduce_prod", plan_reduce}, {"argmax", plan_arg_extreme}, {"argmin", plan_arg_extreme},
         {"cumsum", plan_cumsum})

}  // namespace harmonics::cpu

#endif
