// Products: matrices with any strides, batched, in tiles that a group of threads shares; affine maps with their activation.
#include <cmath>
#include <numeric>
#include <optional>

#include "families.hpp"
#include "kernels/shared/scalar_texts.hpp"

namespace harmonics::opencl {
namespace {

// A group of 8 x 8 threads makes a tile of 32 x 32, each thread 4 x 4 of it, 16 terms at a time.
const char* kProduct = R"(
#define GROUP 8
#define EACH 4
#define TILE 32
#define DEEP 16
#ifdef AFFINE  // bias: is there one? activation: 0 none, 1 relu, 2 tanh, 3 logistic, 4 gelu
SUM finished(SUM y, uint activation) {
  switch (activation) {
    case 1: return y != y || y > 0 ? y : 0;
    case 2: return tanh(y);
    case 3: return LOGISTIC(SUM, y);
    case 4: return (SUM)0.5 * y * ((SUM)1 + erf(y * SQRT1_2));
    default: return y;
  }
}
#define FURTHER , BUFFER(3), uint bias, uint activation
#define RESULT(y, q) finished((y) + (bias ? (SUM)BIAS_READ(2, q) : 0), activation)
#define TO 3
#else
#define FURTHER
#define RESULT(y, q) (y)
#define TO 2
#endif
kernel __attribute__((reqd_work_group_size(GROUP, GROUP, 1)))
void product(BUFFER(0), BUFFER(1), BUFFER(2) FURTHER, uint m, uint n, uint k, uint a_row, uint a_column, uint b_row, uint b_column WALK_PARAMETERS) {
  local A left[DEEP][TILE + 1];
  local B right[DEEP][TILE + 1];
  const uint tx = get_local_id(0), ty = get_local_id(1), me = ty * GROUP + tx;
  const uint row = get_group_id(1) * TILE, column = get_group_id(0) * TILE, batch = get_group_id(2);
  WALK
  SUM sums[EACH][EACH];
  for (uint i = 0; i < EACH; ++i)
    for (uint j = 0; j < EACH; ++j) sums[i][j] = 0;
  for (uint d = 0; d < k; d += DEEP) {
    for (uint e = me; e < DEEP * TILE; e += GROUP * GROUP) {
      const uint ar = a_column == 1 ? e / DEEP : e % TILE, ad = a_column == 1 ? e % DEEP : e / TILE;
      left[ad][ar] = row + ar < m && d + ad < k ? A_READ(0, a_at + (row + ar) * a_row + (d + ad) * a_column) : (A)0;
      const uint bc = b_column == 1 ? e % TILE : e / DEEP, bd = b_column == 1 ? e / TILE : e % DEEP;
      right[bd][bc] = column + bc < n && d + bd < k ? B_READ(1, b_at + (d + bd) * b_row + (column + bc) * b_column) : (B)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = 0; t < DEEP; ++t) {
      SUM x[EACH], y[EACH];
      for (uint i = 0; i < EACH; ++i) x[i] = left[t][ty * EACH + i];
      for (uint j = 0; j < EACH; ++j) y[j] = right[t][tx * EACH + j];
      for (uint i = 0; i < EACH; ++i)
        for (uint j = 0; j < EACH; ++j) sums[i][j] += x[i] * y[j];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (uint i = 0; i < EACH; ++i)
    for (uint j = 0; j < EACH; ++j) {
      const uint r = row + ty * EACH + i, q = column + tx * EACH + j;
      if (r < m && q < n) Y_WRITE(TO, (batch * m + r) * n + q, RESULT(sums[i][j], q));
    }
}
)";
constexpr size_t kTile = 32, kGroup = 8;

struct Run {
  int64_t size = 1, stride = 0;
};

// Axes as one, when they follow each other at one distance.
std::optional<Run> join(const hx_type& t, const std::vector<int64_t>& axes) {
  const auto own = strides(t);
  Run run;
  for (size_t i = axes.size(); i-- > 0;) {
    const auto axis = static_cast<size_t>(axes[i]);
    if (t.dims[axis] == 1) continue;
    if (run.size == 1) run.stride = own[axis];
    else if (own[axis] != run.stride * run.size) return std::nullopt;
    run.size *= t.dims[axis];
  }
  return run;
}

// One operand: which of its axes are batched, free and contracted.
struct Operand {
  hx_type type;
  std::vector<int64_t> batch, contract, free;

  void find_free() {
    for (int64_t i = 0; i < type.rank; ++i)
      if (std::find(batch.begin(), batch.end(), i) == batch.end() && std::find(contract.begin(), contract.end(), i) == contract.end()) free.push_back(i);
  }
  // The copy that makes it [batch..., free..., contract...]; it is dense in that order afterwards.
  Walk rearrange() {
    std::vector<int64_t> order = batch;
    order.insert(order.end(), free.begin(), free.end());
    order.insert(order.end(), contract.begin(), contract.end());
    const auto own = strides(type);
    const hx_type before = type;
    Walk walk{{}, {{}, {}}, {0, 0}};
    for (uint32_t i = 0; i < type.rank; ++i) {
      type.dims[i] = before.dims[order[i]];
      walk.strides[1].push_back(own[static_cast<size_t>(order[i])]);
    }
    walk.sizes = dims(type);
    walk.strides[0] = strides(type);
    int64_t next = 0;
    for (auto* axes : {&batch, &free, &contract})
      for (int64_t& axis : *axes) axis = next++;
    return walk;
  }
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

// What a product ends in, other than its sums: text before the kernel, buffers after the operands', numbers before the sizes.
struct Ending {
  std::string head;
  std::vector<uint32_t> buffers, numbers;
};

hx_kernel& answer_product(const Site& site, Operand (&operands)[2], const Ending& ending, const char* name, hx_kernel& out) {
  Work work;
  uint64_t workspace = 0;
  std::vector<uint32_t> buffers{0, 1};
  int64_t offsets[2] = {0, 0};
  for (uint32_t i = 0; i < 2; ++i) {
    Operand& o = operands[i];
    o.find_free();
    if (join(o.type, o.free) && join(o.type, o.contract)) continue;
    const uint32_t bytes = width(o.type.dtype);
    const int64_t elements = count(o.type);
    Walk walk = o.rearrange();
    walk.offsets[0] = offsets[i] = static_cast<int64_t>(workspace / bytes);
    work.launches.push_back(copy_along(site.machine(), bytes, i, site.workspace(), std::move(walk)));
    buffers[i] = site.workspace();
    workspace += (static_cast<uint64_t>(elements) * bytes + 63) / 64 * 64;
  }
  buffers.insert(buffers.end(), ending.buffers.begin(), ending.buffers.end());
  const Run m = *join(operands[0].type, operands[0].free), ka = *join(operands[0].type, operands[0].contract);
  const Run n = *join(operands[1].type, operands[1].free), kb = *join(operands[1].type, operands[1].contract);
  Walk batches{{}, {{}, {}}, {offsets[0], offsets[1]}};
  for (size_t i = 0; i < operands[0].batch.size(); ++i) {
    batches.sizes.push_back(operands[0].type.dims[operands[0].batch[i]]);
    for (size_t o = 0; o < 2; ++o) batches.strides[o].push_back(strides(operands[o].type)[static_cast<size_t>(operands[o].batch[i])]);
  }
  batches.join();
  const int64_t batch = count(site.out()) / std::max<int64_t>(1, m.size * n.size);
  std::string body = element_macros("A", operands[0].type.dtype) + element_macros("B", operands[1].type.dtype) + element_macros("Y", site.out().dtype) + ending.head +
                     "#define SUM " + sum_name(site.out().dtype) + "\n";
  body += replaced(replaced(kProduct, "WALK_PARAMETERS", batches.parameters("w_")), "WALK\n", batches.text("batch", "w_", {"a_at", "b_at"}));
  Launch& launch = work.launches.emplace_back(site.machine(), body, "product", buffers);
  launch.with_all(ending.numbers);
  for (const int64_t v : {m.size, n.size, ka.size, m.stride, ka.stride, kb.stride, n.stride}) launch.with(static_cast<cl_uint>(v));
  launch.with_all(batches.values());
  launch.groups((static_cast<size_t>(n.size) + kTile - 1) / kTile, (static_cast<size_t>(m.size) + kTile - 1) / kTile, static_cast<size_t>(batch), kGroup, kGroup);
  hx_kernel& kernel = answer(out, std::move(work), name);
  kernel.workspace = workspace;
  return kernel;
}

}  // namespace

bool plan_dot(const Site& site, hx_kernel& out) {
  Operand operands[2] = {{site.in(0), site.integers("lhs_batch"), site.integers("lhs_contract"), {}},
                         {site.in(1), site.integers("rhs_batch"), site.integers("rhs_contract"), {}}};
  answer_product(site, operands, {"", {2}, {}}, "tiled product", out);
  return true;
}

bool plan_linear(const Site& site, hx_kernel& out) {
  static const char* const activations[] = {"", "relu", "tanh", "logistic", "gelu"};
  const auto activation = std::find(std::begin(activations), std::end(activations), site.text("activation"));
  if (activation == std::end(activations)) return declined("has no such activation");
  if (!is_float(site.out().dtype)) return declined("has affine maps of floats only");
  const hx_type& x = site.in(0);
  const bool bias = site.inputs() == 3;
  Operand operands[2] = {{x, {}, {int64_t{x.rank} - 1}, {}}, {site.in(1), {}, {site.flag("transposed") ? 0 : 1}, {}}};
  Ending ending{kernels::kScalarMacros + element_macros("BIAS", site.in(bias ? 2 : 1).dtype) + "#define AFFINE\n#define SQRT1_2 " + literal(site.out().dtype, M_SQRT1_2) + "\n",
                {bias ? 2u : 1u, site.inputs()},
                {bias, static_cast<uint32_t>(activation - std::begin(activations))}};
  answer_product(site, operands, ending, "affine map", out);
  return true;
}

}  // namespace harmonics::opencl
