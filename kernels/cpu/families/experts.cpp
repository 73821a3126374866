// Grouped products: the rows of each group are multiplied by the matrix of the group (mixture of experts).
#include "../family.hpp"

#include <cstdint>

#include "../typed_weights.hpp"

namespace harmonics::cpu {
namespace {

// x [rows, k], offsets and weights -> y [rows, n]. The first buffer of weights is 2.
struct GroupedContext {
  TypedContext typed;  // product of a group; for f32, only the sizes are used
  int64_t rows, groups;
  bool stacked;     // one buffer contains all weights
  bool is_f32;      // type of the weights
  bool transposed;  // matrices are [k, n]
  bool invariant;   // the order of summation must not depend on the size of a group
  int64_t matrix_bytes;
  int64_t decoded;  // rows of a transposed weight decoded at a time
  uint32_t parts, workspace;
  int64_t part_workspace;  // floats
};

// a [rows, m], b [rows, n], offsets -> y [groups, m, n].
struct GroupedOuterContext {
  int64_t rows, groups, m, n;
  uint32_t parts;
};

constexpr int64_t kGroupGranule = 8;                      // columns of y
constexpr int64_t kDecodedRows = 32;                      // rows of y that share decoded rows of a weight
constexpr int64_t kPieceColumns = 64, kPieceDepth = 256;  // piece of a weight that is transposed for many rows
constexpr int64_t kManyRows = 16;

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "gemm.hpp"
#include "transpose.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

struct RowGroups {
  const int32_t* offsets;
  int64_t rows, groups;

  int64_t at(int64_t e) const { return offsets[e] < 0 ? 0 : offsets[e] < rows ? offsets[e] : rows; }
  int64_t count(int64_t e) const { return at(e + 1) > at(e) ? at(e + 1) - at(e) : 0; }

  // Calls f(group, first granule, end) for the part's share of the granules of all groups; a granule of group e has the
  // weight weight(e).
  template <typename Granules, typename Weight, typename F>
  void each(uint32_t parts, uint32_t part, Granules granules, Weight weight, F f) const {
    int64_t total = 0;
    for (int64_t e = 0; e < groups; ++e) total += granules(e) * weight(e);
    const Range range = share(total, parts, part);
    int64_t from = 0;
    for (int64_t e = 0; e < groups && from < range.end; ++e) {
      const int64_t each_weighs = weight(e), n = granules(e), end = from + n * each_weighs;
      if (each_weighs > 0 && end > range.begin) {
        const auto granule = [&](int64_t place) {
          const int64_t g = place <= from ? 0 : (place - from + each_weighs - 1) / each_weighs;
          return g < n ? g : n;
        };
        const int64_t first = granule(range.begin), last = granule(range.end);
        if (first < last) f(e, first, last);
      }
      from = end;
    }
  }
};

void clear_floats(float* x, int64_t n) {
  for (int64_t i = 0; i < n; i += kWidth) store_some(x + i, vf{}, lanes_at(i, n));
}

// Multiplies many rows and rows [0, n) of a weight [n, k], transposing the weight piece by piece.
void multiply_turned(const float* x, int64_t rows, const float* w, int64_t k, float* y, int64_t y_row, int64_t n,
                     float* room) {
  for (int64_t j = 0; j < n; j += kPieceColumns) {
    const int64_t columns = n - j < kPieceColumns ? n - j : kPieceColumns;
    for (int64_t d = 0; d < k; d += kPieceDepth) {
      const int64_t depth = k - d < kPieceDepth ? k - d : kPieceDepth;
      transpose(w + j * k + d, k, room, kPieceColumns, columns, depth);
      gemm_broadcast(rows, columns, depth, {x + d, k, 1}, room, kPieceColumns, y + j, y_row, d > 0);
    }
  }
}

}  // namespace

void grouped_linear(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const GroupedContext*>(context);
  const int64_t k = c.typed.product.k, n = c.typed.product.n;
  const RowGroups all{static_cast<const int32_t*>(buffers[1]), c.rows, c.groups};
  const float* const x = static_cast<const float*>(buffers[0]);
  float* const y = static_cast<float*>(buffers[c.workspace - 1]);
  float* const room =
      c.part_workspace > 0 ? static_cast<float*>(buffers[c.workspace]) + part * c.part_workspace : nullptr;
  const auto weight = [&](int64_t e) {
    return c.stacked ? static_cast<const char*>(buffers[2]) + e * c.matrix_bytes
                     : static_cast<const char*>(buffers[2 + e]);
  };
  if (part == 0) {
    clear_floats(y, all.at(0) * n);
    const int64_t end = all.at(c.groups);
    clear_floats(y + end * n, (c.rows - end) * n);
  }
  if (c.transposed && !c.is_f32) {  // decodes all rows of the weight for each block of rows
    const auto blocks = [&](int64_t e) { return (all.count(e) + kDecodedRows - 1) / kDecodedRows; };
    all.each(
        c.parts, part, blocks, [](int64_t) { return int64_t{1}; },
        [&](int64_t e, int64_t first, int64_t last) {
          const int64_t from = all.at(e) + first * kDecodedRows;
          const int64_t end = last * kDecodedRows < all.count(e) ? last * kDecodedRows : all.count(e);
          const int64_t rows = end - first * kDecodedRows;
          for (int64_t d = 0; d < k; d += c.decoded) {
            const int64_t depth = k - d < c.decoded ? k - d : c.decoded;
            for (int64_t i = 0; i < depth; ++i)
              decode_typed(c.typed.dtype, weight(e) + (d + i) * c.typed.row_bytes, room + i * n, n);
            gemm_broadcast(rows, n, depth, {x + from * k + d, k, 1}, room, n, y + from * n, n, d > 0);
          }
        });
    return;
  }
  const int64_t granules = (n + kGroupGranule - 1) / kGroupGranule;
  all.each(
      c.parts, part, [&](int64_t) { return granules; }, [&](int64_t e) { return all.count(e); },
      [&](int64_t e, int64_t first, int64_t last) {
        const int64_t j = first * kGroupGranule, end = last * kGroupGranule < n ? last * kGroupGranule : n;
        const int64_t rows = all.count(e), columns = end - j;
        const float* const from = x + all.at(e) * k;
        float* const to = y + all.at(e) * n + j;
        if (!c.is_f32)
          multiply_typed(c.typed, from, weight(e) + j * c.typed.row_bytes, to, rows, columns);
        else if (c.transposed)
          gemm_broadcast(rows, columns, k, {from, k, 1}, reinterpret_cast<const float*>(weight(e)) + j, n, to, n,
                         false);
        else if (c.invariant || rows < kManyRows)
          gemm_inner(rows, columns, k, from, k, reinterpret_cast<const float*>(weight(e)) + j * k, k, to, n, false);
        else
          multiply_turned(from, rows, reinterpret_cast<const float*>(weight(e)) + j * k, k, to, n, columns, room);
      });
}

void grouped_outer(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const GroupedOuterContext*>(context);
  const RowGroups all{static_cast<const int32_t*>(buffers[2]), c.rows, c.groups};
  const float *const a = static_cast<const float*>(buffers[0]), *const b = static_cast<const float*>(buffers[1]);
  float* const y = static_cast<float*>(buffers[3]);
  const int64_t granules = (c.m + kGroupGranule - 1) / kGroupGranule;
  all.each(
      c.parts, part, [&](int64_t) { return granules; }, [&](int64_t e) { return all.count(e) + 1; },
      [&](int64_t e, int64_t first, int64_t last) {
        const int64_t i = first * kGroupGranule, end = last * kGroupGranule < c.m ? last * kGroupGranule : c.m;
        float* const to = y + (e * c.m + i) * c.n;
        if (all.count(e) == 0) return clear_floats(to, (end - i) * c.n);
        const int64_t row = all.at(e);
        gemm_broadcast(end - i, c.n, all.count(e), {a + row * c.m + i, 1, c.m}, b + row * c.n, c.n, to, c.n, false);
      });
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include <harmonics/element_type.hpp>

HM_VECTOR_CODE(grouped_linear)
HM_VECTOR_CODE(grouped_outer)

namespace harmonics::cpu {
namespace {

// Sets the sizes of the context; false: unsupported types or shapes.
bool take_groups(const Site& site, GroupedContext& c) {
  const hx_type &x = site.in(0), &weight = site.in(2);
  if (!is_f32(x) || site.in(1).dtype != HX_I32 || !is_f32(site.out())) return false;
  c.stacked = site.inputs() == 3 && weight.rank == 3;
  c.is_f32 = is_f32(weight);
  if (c.stacked && !c.is_f32) return false;
  for (uint32_t i = 3; i < site.inputs(); ++i)
    if (site.in(i).dtype != weight.dtype) return false;
  c.transposed = site.flag("transposed");
  c.invariant = site.flag("batch_invariant");
  c.rows = x.dims[0];
  c.groups = c.stacked ? weight.dims[0] : static_cast<int64_t>(site.inputs()) - 2;
  c.typed = {};
  c.typed.dtype = weight.dtype;
  c.typed.product.k = x.dims[1];
  c.typed.product.n = site.out().dims[1];
  c.typed.product.m = c.rows;
  c.typed.row_bytes = static_cast<int64_t>(run_bytes(static_cast<DType>(weight.dtype), last(weight)));
  c.matrix_bytes = c.typed.row_bytes * weight.dims[weight.rank - 2];
  c.typed.in_order = multiplies_in_order(weight.dtype, c.matrix_bytes);
  c.workspace = site.workspace();
  return c.typed.product.k > 0 && c.typed.product.n > 0;
}

bool plan_grouped_linear(const Site& site, hx_kernel& out) {
  auto c = std::make_unique<GroupedContext>();
  if (site.inputs() < 3 || !take_groups(site, *c)) return false;
  if (!c->is_f32 && !multiplies_type(site.in(2).dtype))
    return declined("multiplies f32 by weights of f32, 16-bit floats and stored types");
  const int64_t k = c->typed.product.k, n = c->typed.product.n;
  constexpr int64_t kPanelFloats = 32768;  // 128 KiB, well within the L2 cache
  if (c->is_f32)
    c->part_workspace = kPieceColumns * kPieceDepth;
  else if (c->transposed)
    c->part_workspace = (c->decoded = std::clamp<int64_t>(kPanelFloats / n, 1, k)) * n;
  const double reads = static_cast<double>(c->typed.row_bytes) *
                       static_cast<double>(std::min(c->rows, c->groups) * (c->transposed ? k : n));
  const double products = static_cast<double>(c->rows) * static_cast<double>(k) * static_cast<double>(n);
  c->parts = parts_for(reads / 10 + products / 40, INT32_MAX);
  const uint64_t workspace = static_cast<uint64_t>(c->part_workspace) * c->parts * sizeof(float);
  answer(out, std::move(c), chosen::grouped_linear(), "products of groups").workspace = workspace;
  return true;
}

bool plan_grouped_outer(const Site& site, hx_kernel& out) {
  const hx_type &a = site.in(0), &b = site.in(1);
  if (!is_f32(a) || !is_f32(b) || site.in(2).dtype != HX_I32 || !is_f32(site.out())) return false;
  auto c = std::make_unique<GroupedOuterContext>();
  c->rows = a.dims[0];
  c->groups = site.in(2).dims[0] - 1;
  c->m = a.dims[1];
  c->n = b.dims[1];
  if (c->m == 0 || c->n == 0) return false;
  const double products = static_cast<double>(c->rows) * static_cast<double>(c->m) * static_cast<double>(c->n);
  c->parts = parts_for(products / 40 + static_cast<double>(c->groups * c->m * c->n) / 2, INT32_MAX);
  answer(out, std::move(c), chosen::grouped_outer(), "outer products of groups");
  return true;
}

}  // namespace

HM_PLANS(experts, {"grouped_linear", plan_grouped_linear}, {"grouped_outer", plan_grouped_outer})

}  // namespace harmonics::cpu

#endif
