// Batched matrix products with any strides, by tiles in local memory. Epilogues: bias and activation, addition, SGD
// update.
#include <cmath>
#include <optional>

#include "kernels/shared/dot_operand.hpp"
#include "product.hpp"

namespace harmonics::opencl {
namespace {

// A work-group of 8 x 8 threads computes a tile of 32 x 32, each thread 4 x 4 of it, 16 terms at a time. Float products
// support all epilogues.
const char* kProduct = R"(
#define GROUP 8
#define EACH 4
#define TILE 32
#define DEEP 16
#define PANEL (DEEP * (TILE + 1))
#define LEFT(d, r) room[(d) * (TILE + 1) + (r)]
#define RIGHT(d, c) room[PANEL + (d) * (TILE + 1) + (c)]
#ifdef ENDINGS
SUM activated(SUM y, uint activation) {
  switch (activation) {
    case 1: return y != y || y > 0 ? y : 0;
    case 2: return tanh(y);
    case 3: return LOGISTIC(SUM, y);
    case 4: return (SUM)0.5 * y * ((SUM)1 + erf(y * SQRT1_2));
    default: return y;
  }
}
#define FURTHER , BUFFER(3), BUFFER(4), BUFFER(5), uint ending, uint activation, uint cycle
#else
#define FURTHER
#endif
kernel __attribute__((reqd_work_group_size(GROUP, GROUP, 1)))
void product(BUFFER(0), BUFFER(1), BUFFER(2) FURTHER, uint m, uint n, uint k, uint runs, uint a_row, uint a_column,
    uint a_run, uint b_row, uint b_column, uint b_run,
             uint to WALK_PARAMETERS) {
  local SUM room[2 * PANEL];  // terms of a, terms of b; then the tile
  const uint tx = get_local_id(0), ty = get_local_id(1), me = ty * GROUP + tx;
  const uint row = get_group_id(1) * TILE, column = get_group_id(0) * TILE, batch = get_group_id(2);
  WALK
  SUM sums[EACH][EACH];
  for (uint i = 0; i < EACH; ++i)
    for (uint j = 0; j < EACH; ++j) sums[i][j] = 0;
  for (uint run = 0; run < runs; ++run) {
    for (uint d = 0; d < k; d += DEEP) {
      for (uint e = me; e < DEEP * TILE; e += GROUP * GROUP) {
        const uint ar = a_column == 1 ? e / DEEP : e % TILE, ad = a_column == 1 ? e % DEEP : e / TILE;
        LEFT(ad, ar) = row + ar < m && d + ad < k ? (SUM)A_READ(0,
          a_at + (row + ar) * a_row + (d + ad) * a_column) : (SUM)0;
        const uint bc = b_column == 1 ? e % TILE : e / DEEP, bd = b_column == 1 ? e / TILE : e % DEEP;
        RIGHT(bd, bc) = column + bc < n && d + bd < k ? (SUM)B_READ(1,
          b_at + (d + bd) * b_row + (column + bc) * b_column) : (SUM)0;
      }
      barrier(CLK_LOCAL_MEM_FENCE);
      for (uint t = 0; t < DEEP; ++t) {
        SUM x[EACH], y[EACH];
        for (uint i = 0; i < EACH; ++i) x[i] = LEFT(t, ty * EACH + i);
        for (uint j = 0; j < EACH; ++j) y[j] = RIGHT(t, tx * EACH + j);
        for (uint i = 0; i < EACH; ++i)
          for (uint j = 0; j < EACH; ++j) sums[i][j] += x[i] * y[j];
      }
      barrier(CLK_LOCAL_MEM_FENCE);
    }
    a_at += a_run;
    b_at += b_run;
  }
  // By way of the room neighbours write neighbours, and the endings stand once, not for each of a thread's sums.
  for (uint i = 0; i < EACH; ++i)
    for (uint j = 0; j < EACH; ++j) room[(ty * EACH + i) * TILE + tx * EACH + j] = sums[i][j];
  barrier(CLK_LOCAL_MEM_FENCE);
#ifdef ENDINGS
  if (b5 && !isfinite(AT(float, 5)[0])) return;
#endif
  for (uint e = me; e < min((uint)TILE, m - row) * TILE; e += GROUP * GROUP) {
    const uint r = row + e / TILE, q = column + e % TILE, place = to + (batch * m + r) * n + q;
    if (q >= n) continue;
    SUM y = room[e];
#ifdef ENDINGS
    switch (ending) {
      case 1: y += (SUM)EXTRA_READ(3, q); break;
      case 2: y += (SUM)EXTRA_READ(3, batch % cycle * m + r); break;
      case 3: y = (SUM)EXTRA_READ(3, place) + y; break;
      case 4: y = (AT(uchar, 4)[0] ? (SUM)EXTRA_READ(3, place) : (SUM)0) + y; break;
      case 5: y = (SUM)EXTRA_READ(3, place) - (SUM)AT(float, 4)[0] * y; break;
      case 6: y = EXTRA_READ(3, place) <= 0 ? 0 : y; break;
    }
    y = activated(y, activation);
#endif
    Y_WRITE(2, place, y);
  }
}
)";
constexpr size_t kTile = 32, kDotGroup = 8;

using kernels::DotOperand;
using kernels::Run;

std::optional<Run> run_of(const hx_type& t, const std::vector<int64_t>& axes) { return kernels::run_of(t, axes, 0); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// Adds the product [batch..., free of a..., free of b...] of two inputs of the site.
void add_product(const Site& site, Work& work, Room& room, DotOperand a, DotOperand b, const hx_type& y, uint32_t to,
                 const Ending& ending = {}) {
  DotOperand* const operands[2] = {&a, &b};
  int64_t offsets[2] = {0, 0};
  for (uint32_t i = 0; i < 2; ++i) {
    DotOperand& o = *operands[i];
    if (run_of(o.type, o.free) && run_of(o.type, o.contract)) continue;
    Walk walk = o.rearrange();
    walk.offsets[0] = offsets[i] = room.take(count(o.type), o.type.dtype);
    work.launches.push_back(
        copy_along(site.machine(), width(o.type.dtype), o.buffer, site.workspace(), std::move(walk)));
    o.buffer = site.workspace();
  }
  const Run m = *run_of(a.type, a.free), ka = *run_of(a.type, a.contract), n = *run_of(b.type, b.free),
            kb = *run_of(b.type, b.contract);
  Walk batches{{}, {{}, {}}, {offsets[0], offsets[1]}};
  for (size_t i = 0; i < a.batch.size(); ++i) {
    batches.sizes.push_back(a.type.dims[a.batch[i]]);
    for (size_t o = 0; o < 2; ++o)
      batches.strides[o].push_back(strides(operands[o]->type)[static_cast<size_t>(operands[o]->batch[i])]);
  }
  work.launches.push_back(product(site.machine(),
                                  {{a.buffer, a.type.dtype, m.stride, ka.stride},
                                   {b.buffer, b.type.dtype, kb.stride, n.stride},
                                   m.size,
                                   n.size,
                                   ka.size,
                                   1,
                                   std::move(batches),
                                   y.dtype,
                                   to},
                                  ending));
}

// Whether the accumulator type is that of the result: f64 for f64 results, else f32.
bool sums_in_type_of_result(const Site& site) {
  if (!is_float(site.in(0).dtype) || !is_float(site.in(1).dtype)) return true;
  return kernels::sum_type(site, site.in(0).dtype, site.in(1).dtype) == (site.out().dtype == HX_F64 ? HX_F64 : HX_F32);
}

}  // namespace

Launch product(Machine& machine, Product p, const Ending& ending) {
  p.batches.join();
  const int64_t matrices = p.batches.count();
  widen(p.batches, 2);  // one program for up to two axes
  const bool endings = is_float(p.dtype);
  std::string body = element_macros("A", p.a.dtype) + element_macros("B", p.b.dtype) + element_macros("Y", p.dtype) +
                     "#define SUM " + sum_name(p.dtype) + "\n";
  std::vector<uint32_t> buffers{p.a.buffer, p.b.buffer, p.to};
  if (endings) {
    body += kernels::kScalarMacros + element_macros("EXTRA", ending.kind == Ending::none ? p.dtype : ending.dtype) +
            "#define ENDINGS\n#define SQRT1_2 " + literal(p.dtype, M_SQRT1_2) + "\n";
    buffers.insert(buffers.end(), {ending.extra, ending.number, kLooked});
  }
  body += replaced(replaced(kProduct, "WALK_PARAMETERS", walk_parameters(p.batches, "w_")), "WALK\n",
                   walk_text(p.batches, "batch", "w_", {"a_at", "b_at"}));
  Launch launch(machine, body, "product", buffers);
  if (endings)
    launch.with(static_cast<cl_uint>(ending.kind)).with(ending.activation).with(static_cast<cl_uint>(ending.cycle));
  for (const int64_t v : {p.m, p.n, p.k, p.runs, p.a.row, p.a.column, p.a.run, p.b.row, p.b.column, p.b.run, p.at})
    launch.with(static_cast<cl_uint>(v));
  launch.with_all(walk_values(p.batches));
  launch.groups((static_cast<size_t>(p.n) + kTile - 1) / kTile, (static_cast<size_t>(p.m) + kTile - 1) / kTile,
                static_cast<size_t>(matrices), kDotGroup, kDotGroup);
  return launch;
}

bool activation_number(const Site& site, uint32_t& number) {
  static const char* const activations[] = {"", "relu", "tanh", "logistic", "gelu"};
  const auto at = std::find(std::begin(activations), std::end(activations), site.text("activation"));
  number = static_cast<uint32_t>(at - std::begin(activations));
  return at != std::end(activations) || declined("has no such activation");
}

bool plan_dot(const Site& site, hx_kernel& out) {
  if (!sums_in_type_of_result(site)) return declined("sums in the type of the result");
  Work work;
  Room room;
  add_product(site, work, room, {site.in(0), 0, site.integers("lhs_batch"), site.integers("lhs_contract")},
              {site.in(1), 1, site.integers("rhs_batch"), site.integers("rhs_contract")}, site.out(), 2);
  answer(out, std::move(work), "tiled product").workspace = room.bytes();
  return true;
}

bool plan_linear(const Site& site, hx_kernel& out) {
  if (kernels::quantises_rows(site)) return declined("does not quantise x");
  if (!sums_in_type_of_result(site)) return declined("sums in the type of the result");
  Ending ending;
  if (!activation_number(site, ending.activation)) return false;
  if (!is_float(site.out().dtype)) return declined("has affine maps of floats only");
  if (!is_float(site.in(0).dtype)) return declined("does not multiply integers in affine maps");
  if (site.inputs() == 3) ending.kind = Ending::bias_of_columns, ending.extra = 2, ending.dtype = site.in(2).dtype;
  const hx_type& x = site.in(0);
  Work work;
  Room room;
  add_product(site, work, room, {x, 0, {}, {int64_t{x.rank} - 1}},
              {site.in(1), 1, {}, {site.flag("transposed") ? 0 : 1}}, site.out(), site.inputs(), ending);
  answer(out, std::move(work), "affine map").workspace = room.bytes();
  return true;
}

// sum, a, b, keep? -> product + (keep ? sum : 0)
bool plan_dot_add(const Site& site, hx_kernel& out) {
  const bool keeps = site.inputs() == 4;
  if (!is_float(site.out().dtype)) return declined("adds products of floats only");
  if (keeps && (site.in(3).dtype != HX_BOOL || count(site.in(3)) != 1)) return declined("keeps a sum by one flag only");
  Ending ending;
  ending.kind = keeps ? Ending::kept_sum : Ending::sum;
  ending.extra = 0;
  ending.dtype = site.in(0).dtype;
  ending.number = keeps ? 3 : 0;
  Work work;
  Room room;
  add_product(site, work, room, {site.in(1), 1, site.integers("lhs_batch"), site.integers("lhs_contract")},
              {site.in(2), 2, site.integers("rhs_batch"), site.integers("rhs_contract")}, site.out(), site.inputs(),
              ending);
  work.looks = true;
  hx_kernel& kernel = answer(out, std::move(work), "sum of products");
  kernel.workspace = room.bytes();
  kernel.in_place = 1;  // each element of the sum is read before it is written
  return true;
}

// w, a, b, lr -> w - lr sum(a b^T), b w^T?
bool plan_sgd_outer(const Site& site, hx_kernel& out) {
  const hx_type &w = site.in(0), &a = site.in(1), &b = site.in(2);
  for (const hx_type* t : {&w, &a, &b, &site.in(3)})
    if (t->dtype != HX_F32) return declined("steps f32 parameters only");
  std::vector<int64_t> leading;
  for (int64_t i = 0; i + 1 < a.rank; ++i) leading.push_back(i);
  Work work;
  Room room;
  const std::string mode = site.text("input_gradient");
  if (site.outputs() != (mode.empty() ? 1u : 2u)) return declined("takes the gradient of the input by input_gradient");
  if (!mode.empty()) {  // uses the old w
    Ending active;
    if (mode == "active") active.kind = Ending::where_active, active.extra = 1, active.dtype = HX_F32;
    add_product(site, work, room, {b, 2, {}, {int64_t{b.rank} - 1}}, {w, 0, {}, {1}}, site.out(1), 5, active);
  }
  Ending step;
  step.kind = Ending::step;
  step.dtype = HX_F32;
  step.number = 3;
  add_product(site, work, room, {a, 1, {}, leading}, {b, 2, {}, leading}, site.out(), 4, step);
  work.looks = true;
  hx_kernel& kernel = answer(out, std::move(work), "sgd of a product");
  kernel.workspace = room.bytes();
  kernel.in_place = 1;
  return true;
}

HM_PLANS(dot, {"dot", plan_dot}, {"dot_add", plan_dot_add}, {"sgd_outer", plan_sgd_outer}, {"linear", plan_linear})

}  // namespace harmonics::opencl
