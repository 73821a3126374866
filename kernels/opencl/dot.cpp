// Products: matrices with any strides, batched, in tiles that a group of threads shares.
#include <numeric>
#include <optional>

#include "families.hpp"

namespace harmonics::opencl {
namespace {

// A group of 8 x 8 threads makes a tile of 32 x 32, each thread 4 x 4 of it, 16 terms at a time.
const char* kProduct = R"(
#define GROUP 8
#define EACH 4
#define TILE 32
#define DEEP 16
kernel __attribute__((reqd_work_group_size(GROUP, GROUP, 1)))
void product(BUFFER(0), BUFFER(1), BUFFER(2), uint m, uint n, uint k, uint a_row, uint a_column, uint b_row, uint b_column WALK_PARAMETERS) {
  local T left[DEEP][TILE + 1], right[DEEP][TILE + 1];
  const uint tx = get_local_id(0), ty = get_local_id(1), me = ty * GROUP + tx;
  const uint row = get_group_id(1) * TILE, column = get_group_id(0) * TILE, batch = get_group_id(2);
  WALK
  global const T* a = AT(T, 0) + a_at;
  global const T* b = AT(T, 1) + b_at;
  global T* c = AT(T, 2) + (ulong)batch * m * n;
  SUM sums[EACH][EACH];
  for (uint i = 0; i < EACH; ++i)
    for (uint j = 0; j < EACH; ++j) sums[i][j] = 0;
  for (uint d = 0; d < k; d += DEEP) {
    for (uint e = me; e < DEEP * TILE; e += GROUP * GROUP) {
      const uint ar = A_BY_ROW ? e / DEEP : e % TILE, ad = A_BY_ROW ? e % DEEP : e / TILE;
      left[ad][ar] = row + ar < m && d + ad < k ? a[(row + ar) * a_row + (d + ad) * a_column] : (T)0;
      const uint bc = B_BY_ROW ? e % TILE : e / DEEP, bd = B_BY_ROW ? e / TILE : e % DEEP;
      right[bd][bc] = column + bc < n && d + bd < k ? b[(d + bd) * b_row + (column + bc) * b_column] : (T)0;
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
      if (r < m && q < n) c[r * n + q] = (T)sums[i][j];
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

}  // namespace

bool plan_dot(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  if (!type_name(dtype)) return declined("computes f32, f64 and whole numbers, not f16 and bf16");
  Operand operands[2] = {{site.in(0), site.integers("lhs_batch"), site.integers("lhs_contract"), {}},
                         {site.in(1), site.integers("rhs_batch"), site.integers("rhs_contract"), {}}};
  Work work;
  uint64_t workspace = 0;
  uint32_t buffers[2] = {0, 1};
  int64_t offsets[2] = {0, 0};
  for (uint32_t i = 0; i < 2; ++i) {
    Operand& o = operands[i];
    o.find_free();
    if (join(o.type, o.free) && join(o.type, o.contract)) continue;
    const int64_t elements = count(o.type);
    Walk walk = o.rearrange();
    walk.offsets[0] = offsets[i] = static_cast<int64_t>(workspace / width(dtype));
    work.launches.push_back(copy_along(site.machine(), width(dtype), i, site.workspace(), std::move(walk)));
    buffers[i] = site.workspace();
    workspace += (static_cast<uint64_t>(elements) * width(dtype) + 63) / 64 * 64;
  }
  const Run m = *join(operands[0].type, operands[0].free), ka = *join(operands[0].type, operands[0].contract);
  const Run n = *join(operands[1].type, operands[1].free), kb = *join(operands[1].type, operands[1].contract);
  Walk batches{{}, {{}, {}}, {offsets[0], offsets[1]}};
  for (size_t i = 0; i < operands[0].batch.size(); ++i) {
    batches.sizes.push_back(operands[0].type.dims[operands[0].batch[i]]);
    for (size_t o = 0; o < 2; ++o) batches.strides[o].push_back(strides(operands[o].type)[static_cast<size_t>(operands[o].batch[i])]);
  }
  batches.join();
  const int64_t batch = count(site.out()) / std::max<int64_t>(1, m.size * n.size);
  std::string body = "#define T " + std::string(type_name(dtype)) + "\n#define SUM " + sum_name(dtype) + "\n#define A_BY_ROW " + (ka.stride == 1 ? "1" : "0") +
                     "\n#define B_BY_ROW " + (n.stride == 1 ? "1" : "0") + "\n";
  body += replaced(replaced(kProduct, "WALK_PARAMETERS", batches.parameters("w_")), "WALK\n", batches.text("batch", "w_", {"a_at", "b_at"}));
  Launch& launch = work.launches.emplace_back(site.machine(), body, "product", std::vector<uint32_t>{buffers[0], buffers[1], 2});
  for (const int64_t v : {m.size, n.size, ka.size, m.stride, ka.stride, kb.stride, n.stride}) launch.with(static_cast<cl_uint>(v));
  launch.with_all(batches.values());
  launch.groups((static_cast<size_t>(n.size) + kTile - 1) / kTile, (static_cast<size_t>(m.size) + kTile - 1) / kTile, static_cast<size_t>(batch), kGroup, kGroup);
  answer(out, std::move(work), "tiled product").workspace = workspace;
  return true;
}

}  // namespace harmonics::opencl
