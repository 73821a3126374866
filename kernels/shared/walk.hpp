// Walks through strided arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/shared/site.hpp"

namespace harmonics::kernels {

// Sizes of axes and, per array, strides and an offset in elements.
struct Walk {
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> strides;  // by array and axis
  std::vector<int64_t> offsets;               // by array

  int64_t count() const {
    int64_t n = 1;
    for (const int64_t d : sizes) n *= d;
    return n;
  }
  // Drops axes of size 1 and merges adjacent axes where all arrays allow it.
  void join() {
    const auto erase = [&](size_t axis) {
      sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(axis));
      for (auto& s : strides) s.erase(s.begin() + static_cast<ptrdiff_t>(axis));
    };
    for (size_t i = sizes.size(); i-- > 0;)
      if (sizes[i] == 1) erase(i);
    for (size_t i = sizes.size(); i-- > 1;) {
      if (!std::all_of(strides.begin(), strides.end(), [&](const auto& s) { return s[i - 1] == s[i] * sizes[i]; }))
        continue;
      for (auto& s : strides) s[i - 1] = s[i];
      sizes[i - 1] *= sizes[i];
      erase(i);
    }
  }
};

// Walks of copying primitives: array 0 is the result, array 1 the input.
inline Walk transpose_walk(const Site& site) {
  const auto own = strides(site.in(0));
  std::vector<int64_t> from;
  for (const int64_t axis : site.integers("permutation")) from.push_back(own[static_cast<size_t>(axis)]);
  return {dims(site.out()), {strides(site.out()), std::move(from)}, {0, 0}};
}
inline Walk broadcast_walk(const Site& site) {
  const hx_type& y = site.out();
  return {dims(y), {strides(y), broadcast_strides(site.in(0), y)}, {0, 0}};
}
inline Walk slice_walk(const Site& site) {
  const auto starts = site.integers("starts"), steps = site.integers("strides");
  auto from = strides(site.in(0));
  int64_t offset = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    offset += starts[i] * from[i];
    if (!steps.empty()) from[i] *= steps[i];
  }
  return {dims(site.out()), {strides(site.out()), std::move(from)}, {0, offset}};
}
inline Walk reverse_walk(const Site& site) {
  auto from = strides(site.in(0));
  int64_t offset = 0;
  for (const int64_t axis : site.integers("axes")) {
    const auto a = static_cast<size_t>(axis);
    offset += (site.in(0).dims[a] - 1) * from[a];
    from[a] = -from[a];
  }
  return {dims(site.out()), {strides(site.out()), std::move(from)}, {0, offset}};
}
// Walks over the elements of the input; the caller fills the result first.
inline Walk pad_walk(const Site& site) {
  const auto low = site.integers("low"), interior = site.integers("interior");
  const hx_type& x = site.in(0);
  auto to = strides(site.out());
  int64_t offset = 0;
  for (size_t i = 0; i < to.size(); ++i) {
    offset += low[i] * to[i];
    if (!interior.empty()) to[i] *= interior[i] + 1;
  }
  return {dims(x), {std::move(to), strides(x)}, {offset, 0}};
}

// The kept and the reduced axes of an array, joined.
struct ReductionWalks {
  Walk kept, reduced;
};
inline ReductionWalks reduction_walks(const hx_type& x, const std::vector<int64_t>& axes) {
  const auto own = strides(x);
  ReductionWalks walks{{{}, {{}}, {0}}, {{}, {{}}, {0}}};
  for (uint32_t i = 0; i < x.rank; ++i) {
    Walk& w = std::find(axes.begin(), axes.end(), i) == axes.end() ? walks.kept : walks.reduced;
    w.sizes.push_back(x.dims[i]);
    w.strides[0].push_back(own[i]);
  }
  walks.kept.join();
  walks.reduced.join();
  return walks;
}

}  // namespace harmonics::kernels
