// Operands of dot products as matrices.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/shared/walk.hpp"

namespace harmonics::kernels {

// Several axes merged into one axis.
struct Run {
  int64_t size, stride;
};
// Merges axes in this order; nullopt if they have no common stride. A run of one element has the stride `of_one`.
inline std::optional<Run> run_of(const hx_type& t, const std::vector<int64_t>& axes, int64_t of_one = 1) {
  const auto own = strides(t);
  Run run{1, of_one};
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const auto a = static_cast<size_t>(*axis);
    if (t.dims[a] == 1) continue;
    if (run.size == 1)
      run.stride = own[a];
    else if (own[a] != run.stride * run.size)
      return std::nullopt;
    run.size *= t.dims[a];
  }
  return run;
}

// An operand's axes: batch, contracted, free.
struct DotOperand {
  hx_type type;
  uint32_t buffer;
  std::vector<int64_t> batch, contract, free;

  DotOperand(const hx_type& t, uint32_t from, std::vector<int64_t> batch_axes, std::vector<int64_t> contracted)
      : type(t), buffer(from), batch(std::move(batch_axes)), contract(std::move(contracted)) {
    for (int64_t i = 0; i < type.rank; ++i)
      if (std::find(batch.begin(), batch.end(), i) == batch.end() &&
          std::find(contract.begin(), contract.end(), i) == contract.end())
        free.push_back(i);
  }
  // Whether the free and the contracted axes are runs, one of them contiguous.
  bool is_matrix() const {
    const auto f = run_of(type, free), k = run_of(type, contract);
    return f && k && (f->stride == 1 || k->stride == 1 || f->size == 1 || k->size == 1);
  }
  // Makes the operand dense [batch..., free..., contract...]. Returns the walk of the copy: array 0 is the new array.
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

// Returns the operands `first` and `first` + 1 of a dot. Contracted axes may be paired in any order; sorting by the
// left operand's axes makes contiguous runs more likely.
inline std::array<DotOperand, 2> dot_operands(const Site& site, uint32_t first) {
  const auto a = site.integers("lhs_contract"), b = site.integers("rhs_contract");
  std::vector<size_t> order(a.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return a[i] < a[j]; });
  std::vector<int64_t> a_sorted, b_sorted;
  for (const size_t i : order) {
    a_sorted.push_back(a[i]);
    b_sorted.push_back(b[i]);
  }
  return {DotOperand(site.in(first), first, site.integers("lhs_batch"), std::move(a_sorted)),
          DotOperand(site.in(first + 1), first + 1, site.integers("rhs_batch"), std::move(b_sorted))};
}

}  // namespace harmonics::kernels
