// Stable merge sort along an axis: runs of indices are merged in pairs; each element finds its position by binary
// search.
#include "families.hpp"

namespace harmonics::opencl {
namespace {

const char* kSort = R"(
#define BASE(line) ((line) / inner * size * inner + (line) % inner)
kernel void begin(BUFFER(0), uint all, uint size) {
  const uint i = get_global_id(0);
  if (i < all) AT(uint, 0)[i] = i % size;
}
// Lists of indices at `from` and `to` of buffer 1, sorted in runs of `run`, then of 2 * run. An element passes those of
// the other run that come before it; of equal ones those of the left run.
kernel void merge(BUFFER(0), BUFFER(1), uint all, uint size, uint inner, uint from, uint to, uint run) {
  const uint g = get_global_id(0);
  if (g >= all) return;
  const uint line = g / size, i = g % size, base = BASE(line);
  global const uint* order = AT(uint, 1) + from + line * size;
  global uint* merged = AT(uint, 1) + to + line * size;
  const uint number = i / run, right = number & 1, first = (number - right) * run;
  const uint start = min(right ? first : first + run, size);
  uint low = start, high = min(start + run, size);
  const E a = E_READ(0, base + order[i] * inner);
  while (low < high) {
    const uint middle = (low + high) / 2;
    const E b = E_READ(0, base + order[middle] * inner);
    if (right ? !BEFORE(a, b) : BEFORE(b, a)) low = middle + 1;
    else high = middle;
  }
  merged[first + (i - number * run) + (low - start)] = order[i];
}
kernel void finish(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), uint all, uint size, uint inner, uint from) {
  const uint g = get_global_id(0);
  if (g >= all) return;
  const uint line = g / size, base = BASE(line), index = AT(uint, 3)[from + g], to = base + g % size * inner;
  AT(WORD, 1)[to] = AT(WORD, 0)[base + index * inner];
  AT(long, 2)[to] = index;
}
)";

}  // namespace

bool plan_sort(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const auto axis = static_cast<size_t>(site.integer("axis"));
  const auto all = static_cast<cl_uint>(count(x)), size = static_cast<cl_uint>(x.dims[axis]),
             inner = static_cast<cl_uint>(strides(x)[axis]);
  if (int64_t{all} * 2 >= kMostElements) return declined("counts elements in 31 bits");
  const bool descending = site.flag("descending"), real = is_float(x.dtype);
  const std::string before = !real        ? (descending ? "((a) > (b))" : "((a) < (b))")
                             : descending ? "((a) > (b) || ((a) != (a) && (b) == (b)))"
                                          : "((a) < (b) || ((b) != (b) && (a) == (a)))";
  const std::string body = element_macros("E", x.dtype) + "#define WORD " + word_name(x.dtype) +
                           "\n#define BEFORE(a, b) " + before + "\n" + kSort;
  const uint32_t room = site.workspace();
  Work work;
  work.launches.emplace_back(site.machine(), body, "begin", std::vector<uint32_t>{room}).with(all).with(size).over(all);
  cl_uint from = 0;
  for (uint64_t run = 1; run < size; run *= 2, from = all - from)
    work.launches.emplace_back(site.machine(), body, "merge", std::vector<uint32_t>{0, room})
        .with(all)
        .with(size)
        .with(inner)
        .with(from)
        .with(all - from)
        .with(static_cast<cl_uint>(run))
        .over(all);
  work.launches.emplace_back(site.machine(), body, "finish", std::vector<uint32_t>{0, 1, 2, room})
      .with(all)
      .with(size)
      .with(inner)
      .with(from)
      .over(all);
  answer(out, std::move(work), "sort").workspace = uint64_t{all} * 2 * sizeof(cl_uint);
  return true;
}

HM_PLANS(sort, {"sort", plan_sort})

}  // namespace harmonics::opencl
