// Plans strided copies, and fill, iota, random.
#include "families.hpp"

namespace harmonics::cuda {
namespace {

bool answer_copy(const Site& site, Walk walk, const char* name, hx_kernel& out) {
  Work work(site.machine());
  copy_along(work, width(site.out().dtype), {0}, {site.inputs()}, std::move(walk));
  answer(out, std::move(work), name);
  return true;
}

// Whether the walk is a batch of transposes, whose tiles are contiguous on both sides.
bool is_transpose(const Walk& w) {
  const size_t rank = w.sizes.size();
  if (rank < 2 || rank > 3 || w.offsets[0] != 0 || w.offsets[1] != 0) return false;
  const size_t r = rank - 2, c = rank - 1;
  if (w.sizes[r] < 8 || w.sizes[c] < 8 || w.strides[0][c] != 1 || w.strides[0][r] != w.sizes[c] ||
      w.strides[1][r] != 1 || w.strides[1][c] != w.sizes[r])
    return false;
  const int64_t plane = w.sizes[r] * w.sizes[c];
  return rank == 2 || (w.strides[0][0] == plane && w.strides[1][0] == plane && w.sizes[0] <= kMostBlocks);
}

// Merges pairs of adjacent elements into wider elements, up to 16 bytes, if all rows consist of such pairs.
void widen(Walk& walk, uint32_t& bytes) {
  const auto even = [](int64_t v) { return v % 2 == 0; };
  while (bytes < 16 && even(walk.sizes.back())) {
    for (size_t a = 0; a < 2; ++a) {
      const auto& s = walk.strides[a];
      if (s.back() != 1 || !even(walk.offsets[a]) || !std::all_of(s.begin(), s.end() - 1, even)) return;
    }
    bytes *= 2;
    walk.sizes.back() /= 2;
    for (size_t a = 0; a < 2; ++a) {
      walk.offsets[a] /= 2;
      for (size_t i = 0; i + 1 < walk.sizes.size(); ++i) walk.strides[a][i] /= 2;
    }
  }
}

}  // namespace

void copy_along(Work& work, uint32_t bytes, Operand from, Operand to, Walk walk) {
  walk.join();
  const int64_t n = walk.count();
  const bool is_run =
      walk.sizes.empty() || (walk.sizes.size() == 1 && walk.strides[0][0] == 1 && walk.strides[1][0] == 1);
  if (is_run) {
    to.offset += static_cast<uint64_t>(walk.offsets[0]) * bytes;
    from.offset += static_cast<uint64_t>(walk.offsets[1]) * bytes;
    work.copy(to, from, static_cast<uint64_t>(n) * bytes);
  } else if (const size_t rank = walk.sizes.size();
             is_transpose(walk) && walk.sizes[rank - 2] / kTransposedTile < kMostBlocks) {
    const auto rows = static_cast<uint32_t>(walk.sizes[rank - 2]),
               columns = static_cast<uint32_t>(walk.sizes[rank - 1]);
    const auto tiles = [](uint32_t n) { return (n + kTransposedTile - 1) / kTransposedTile; };
    work.launch(transpose_function(bytes),
                {tiles(columns), tiles(rows), rank == 3 ? static_cast<uint32_t>(walk.sizes[0]) : 1, kThreads},
                {from, to}, TransposeParameters{rows, columns});
  } else {
    widen(walk, bytes);
    const int64_t wide = walk.count();
    work.over(wide, copy_function(bytes), {from, to}, CopyParameters{static_cast<uint32_t>(wide), steps<2>(walk)});
  }
}

void fill(Work& work, uint32_t dtype, Operand to, int64_t n, uint64_t bits) {
  work.over(n, fill_function(width(dtype)), {to}, FillParameters{static_cast<uint32_t>(n), bits});
}

bool plan_reshape(const Site& site, hx_kernel& out) {
  Work work(site.machine());
  work.copy({1}, {0}, bytes_of(site.out()));
  answer(out, std::move(work), "copy").in_place = 1;
  return true;
}

bool plan_transpose(const Site& site, hx_kernel& out) {
  return answer_copy(site, kernels::transpose_walk(site), "transpose", out);
}
bool plan_broadcast(const Site& site, hx_kernel& out) {
  return answer_copy(site, kernels::broadcast_walk(site), "broadcast", out);
}
bool plan_slice(const Site& site, hx_kernel& out) { return answer_copy(site, kernels::slice_walk(site), "slice", out); }
bool plan_reverse(const Site& site, hx_kernel& out) {
  return answer_copy(site, kernels::reverse_walk(site), "reverse", out);
}

bool plan_pad(const Site& site, hx_kernel& out) {
  const hx_type& y = site.out();
  uint64_t bits = 0;
  if (!element_bits(y.dtype, site.number("value"), bits)) return declined("cannot round this number to the type");
  Work work(site.machine());
  fill(work, y.dtype, {1}, count(y), bits);
  copy_along(work, width(y.dtype), {0}, {1}, kernels::pad_walk(site));
  answer(out, std::move(work), "pad");
  return true;
}

bool plan_concat(const Site& site, hx_kernel& out) {
  const auto axis = static_cast<size_t>(site.integer("axis"));
  const auto to = strides(site.out());
  int64_t at = 0;
  Work work(site.machine());
  for (uint32_t i = 0; i < site.inputs(); ++i) {
    const hx_type& x = site.in(i);
    copy_along(work, width(x.dtype), {i}, {site.inputs()}, {dims(x), {to, strides(x)}, {at * to[axis], 0}});
    at += x.dims[axis];
  }
  answer(out, std::move(work), "concat");
  return true;
}

bool plan_full(const Site& site, hx_kernel& out) {
  uint64_t bits = 0;
  if (!element_bits(site.out().dtype, site.number("value"), bits))
    return declined("cannot round this number to the type");
  Work work(site.machine());
  fill(work, site.out().dtype, {0}, count(site.out()), bits);
  answer(out, std::move(work), "full");
  return true;
}

bool plan_iota(const Site& site, hx_kernel& out) {
  const hx_type& y = site.out();
  if (y.dtype == HX_F16 || y.dtype == HX_BF16) return declined("counts in f32, f64 and whole numbers");
  const auto axis = static_cast<size_t>(site.integer("axis"));
  const auto n = static_cast<uint32_t>(count(y));
  Work work(site.machine());
  work.over(n, iota_function(), {{0}},
            IotaParameters{n, static_cast<uint32_t>(y.dims[axis]), static_cast<uint32_t>(strides(y)[axis]), y.dtype});
  answer(out, std::move(work), "iota");
  return true;
}

bool plan_random_uniform(const Site& site, hx_kernel& out) {
  if (site.in(0).dtype != HX_I64 || count(site.in(0)) != 2 || !is_f32(site.out()))
    return declined("generates f32 from a counter of two i64");
  const auto n = static_cast<uint32_t>(count(site.out()));
  Work work(site.machine());
  work.over((n + 3) / 4, random_function(), {{0}, {1}},
            RandomParameters{n, static_cast<uint64_t>(site.integer("stream"))});
  answer(out, std::move(work), "philox");
  return true;
}

HM_PLANS(layout, {"reshape", plan_reshape}, {"bitcast", plan_reshape}, {"transpose", plan_transpose},
         {"broadcast", plan_broadcast}, {"slice", plan_slice}, {"reverse", plan_reverse}, {"pad", plan_pad},
         {"concat", plan_concat}, {"full", plan_full}, {"iota", plan_iota}, {"random_uniform", plan_random_uniform})

}  // namespace harmonics::cuda
