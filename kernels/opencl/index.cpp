// Gather and scatter. Out-of-range indices are clamped.
#include "families.hpp"

namespace harmonics::opencl {
namespace {

// Defines the macro INDEX(n, i, size): index i of buffer n, clamped to [0, size).
std::string index_macro(uint32_t dtype) {
  const std::string type = type_name(dtype);
  return "#define INDEX(n, i, size) ((uint)clamp((long)min(AT(" + type + ", n)[i], (" + type + ")" +
         (width(dtype) == 1   ? (is_signed(dtype) ? "CHAR_MAX" : "UCHAR_MAX")
          : width(dtype) == 2 ? (is_signed(dtype) ? "SHRT_MAX" : "USHRT_MAX")
          : width(dtype) == 4 ? "INT_MAX"
                              : "LONG_MAX") +
         "), 0L, (long)(size) - 1))\n";
}

struct Axis {
  int64_t outer, size, inner;
  Axis(const hx_type& x, int64_t axis) : size(x.dims[axis]), inner(strides(x)[static_cast<size_t>(axis)]) {
    outer = count(x) / std::max<int64_t>(1, size * inner);
  }
};

}  // namespace

const char* joining(std::string_view reduction) {
  if (reduction == "set") return "sum = v";
  if (reduction == "max") return "sum = sum != sum || (v == v && !(v > sum)) ? sum : v";
  if (reduction == "min") return "sum = sum != sum || (v == v && !(v < sum)) ? sum : v";
  return "sum += v";
}

bool plan_gather(const Site& site, hx_kernel& out) {
  if (site.in(0).dtype != site.out().dtype) return declined("copies rows, without a conversion");
  const Axis x(site.in(0), site.integer("axis"));
  const std::string word = word_name(site.in(0).dtype);
  const std::string body =
      index_macro(site.in(1).dtype) +
      "kernel void gather(BUFFER(0), BUFFER(1), BUFFER(2), uint n, uint size, uint inner, uint indices) {\n  const "
      "uint i = get_global_id(0);\n"
      "  if (i >= n) return;\n  const uint row = i / inner, at = INDEX(1, row % indices, size);\n  AT(" +
      word + ", 2)[i] = AT(" + word + ", 0)[(row / indices * size + at) * inner + i % inner];\n}\n";
  const int64_t n = count(site.out());
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "gather", std::vector<uint32_t>{0, 1, 2});
  for (const int64_t v : {n, x.size, x.inner, count(site.in(1))}) launch.with(static_cast<cl_uint>(v));
  launch.over(n);
  answer(out, std::move(work), "gather");
  return true;
}

namespace {

// Builds a linked list of the indices of each row. Each thread visits all indices in order and links those of its own
// rows; `last` is the latest index of each row. The top bit of a link marks an index that is not the first of its row.
const char* kLink = R"(
#define NONE 0x7fffffffu
#define LINKS 64
kernel __attribute__((reqd_work_group_size(LINKS, 1, 1)))
void link(BUFFER(0), BUFFER(1), uint size, uint indices) {
  const uint me = get_local_id(0);
  global uint* last = AT(uint, 1);
  global uint* next = last + size;
  for (uint r = me; r < size; r += LINKS) last[r] = NONE;
  for (uint k = 0; k < indices; ++k) {
    const uint r = INDEX(0, k, size);
    if (r % LINKS != me) continue;
    const uint before = last[r];
    if (before != NONE) next[before] = (next[before] & ~NONE) | k;
    next[k] = before == NONE ? NONE : (NONE | ~NONE);
    last[r] = k;
  }
}
)";
constexpr size_t kLinks = 64;

// Rows of `inner` elements, `size` of them `outer` times; `indices`: number of row indices.
struct Scatter {
  int64_t outer, size, inner, indices;
  uint32_t ids, updates, result;
  std::string index_text;  // defines INDEX
};

// Combines the rows of `updates` with rows of the result, in index order.
void scatter(Work& work, const Site& site, const Scatter& s, std::string_view reduction) {
  const uint32_t dtype = site.in(s.updates).dtype;
  const std::string sum = reduction == "add" ? sum_name(dtype) : type_name(dtype);
  const std::string body =
      s.index_text +
      "kernel void scatter(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), uint n, uint size, uint inner, uint indices) "
      "{\n  const uint i = get_global_id(0);\n"
      "  if (i >= n) return;\n  global const uint* next = AT(uint, 3) + size;\n  uint k = i / inner % indices;\n  if "
      "(next[k] >> 31) return;\n"
      "  const uint o = i / inner / indices, c = i % inner, y = (o * size + INDEX(0, k, size)) * inner + c;\n  " +
      sum + " sum = " + read(dtype, 2, "y") + ";\n  for (;;) {\n    const " + sum +
      " v = " + read(dtype, 1, "(o * indices + k) * inner + c") + ";\n    " + joining(reduction) +
      ";\n    k = next[k] & 0x7fffffffu;\n    if (k == 0x7fffffffu) break;\n  }\n  " + write(dtype, 2, "y", "sum") +
      "\n}\n";
  Launch& link = work.launches.emplace_back(site.machine(), s.index_text + kLink, "link",
                                            std::vector<uint32_t>{s.ids, site.workspace()});
  link.with(static_cast<cl_uint>(s.size)).with(static_cast<cl_uint>(s.indices)).groups(1, 1, 1, kLinks);
  const int64_t n = s.outer * s.indices * s.inner;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "scatter",
                                              std::vector<uint32_t>{s.ids, s.updates, s.result, site.workspace()});
  for (const int64_t v : {n, s.size, s.inner, s.indices}) launch.with(static_cast<cl_uint>(v));
  launch.over(n);
}

bool answer_scatter(const Site& site, uint32_t ids, uint32_t updates, Launch first, int64_t axis, const char* name,
                    hx_kernel& out) {
  const Axis x(site.out(), axis);
  const int64_t indices = count(site.in(ids));
  if (x.outer * indices * x.inner >= kMostElements) return declined("counts elements in 31 bits");
  Work work;
  work.launches.push_back(std::move(first));
  scatter(work, site, {x.outer, x.size, x.inner, indices, ids, updates, site.inputs(), index_macro(site.in(ids).dtype)},
          "add");
  answer(out, std::move(work), name).workspace = static_cast<uint64_t>(x.size + indices) * sizeof(cl_uint);
  return true;
}

}  // namespace

bool plan_scatter_add(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!answer_scatter(site, 1, 2, copy_whole(site.machine(), x, 0, 3), site.integer("axis"), "scatter add", out))
    return false;
  out.in_place = 1;
  return true;
}

bool plan_embedding_grad(const Site& site, hx_kernel& out) {
  const hx_type& y = site.out();
  return answer_scatter(site, 0, 1, fill(site.machine(), y.dtype, 2, count(y), 0), 0, "embedding gradient", out);
}

namespace {

// Defines the macro PLACE(i, place): offset in `whole` of element i of a block, with starts read on the device.
std::string block_text(const hx_type& whole, uint32_t index_dtype, const char* starts) {
  std::string s = index_macro(index_dtype) + "#define PLACE(i, place) uint place = 0; { uint rest = i, wide = 1;";
  for (uint32_t a = whole.rank; a-- > 0;) {
    const std::string k = std::to_string(a);
    s += " place += (rest % d" + k + " + INDEX(" + starts + ", " + k + ", s" + k + " - d" + k +
         " + 1)) * wide; rest /= d" + k + "; wide *= s" + k + ";";
  }
  return s + " }\n";
}
std::string block_parameters(uint32_t rank) {
  std::string s;
  for (uint32_t a = 0; a < rank; ++a) s += ", uint s" + std::to_string(a) + ", uint d" + std::to_string(a);
  return s;
}
void give_block(Launch& launch, const hx_type& whole, const hx_type& block) {
  launch.with(static_cast<cl_uint>(count(block)));
  for (uint32_t a = 0; a < whole.rank; ++a)
    launch.with(static_cast<cl_uint>(whole.dims[a])).with(static_cast<cl_uint>(block.dims[a]));
  launch.over(count(block));
}

}  // namespace

bool plan_dynamic_slice(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &y = site.out();
  const std::string word = word_name(x.dtype);
  const std::string body = block_text(x, site.in(1).dtype, "1") +
                           "kernel void block(BUFFER(0), BUFFER(1), BUFFER(2), uint n" + block_parameters(x.rank) +
                           ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  PLACE(i, place)\n  AT(" +
                           word + ", 2)[i] = AT(" + word + ", 0)[place];\n}\n";
  Work work;
  give_block(work.launches.emplace_back(site.machine(), body, "block", std::vector<uint32_t>{0, 1, 2}), x, y);
  answer(out, std::move(work), "dynamic slice");
  return true;
}

bool plan_update_slice(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &block = site.in(1);
  const std::string word = word_name(x.dtype);
  const std::string body = block_text(x, site.in(2).dtype, "1") +
                           "kernel void block(BUFFER(0), BUFFER(1), BUFFER(2), uint n" + block_parameters(x.rank) +
                           ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  PLACE(i, place)\n  AT(" +
                           word + ", 2)[place] = AT(" + word + ", 0)[i];\n}\n";
  Work work;
  work.launches.push_back(copy_whole(site.machine(), x, 0, 3));
  give_block(work.launches.emplace_back(site.machine(), body, "block", std::vector<uint32_t>{1, 2, 3}), x, block);
  answer(out, std::move(work), "update slice").in_place = 1;
  return true;
}

namespace {

// Positions along several axes: batches of `rows` rows of `inner` elements, each with `places` positions of `k`
// indices.
struct Positions {
  int64_t batches = 1, rows = 1, inner = 1, places, k;
  std::vector<int64_t> sizes;  // of the k indexed axes

  explicit Positions(const Site& site) : k(site.in(1).dims[site.in(1).rank - 1]) {
    const hx_type &x = site.in(0), &ids = site.in(1);
    const int64_t batch = site.integer("batch_axes");
    for (uint32_t i = 0; i < x.rank; ++i) {
      if (i >= batch && i < batch + k) sizes.push_back(x.dims[i]);
      (i < batch ? batches : i < batch + k ? rows : inner) *= x.dims[i];
    }
    places = count(ids) / (batches * k);
  }
  // Defines the macro ROW_OF(p, row): the row of position `p` of all batches, from indices in buffer 1.
  std::string text(uint32_t index_dtype) const {
    std::string s = index_macro(index_dtype) + "#define ROW_OF(p, row) uint row = (p) / places;";
    for (size_t j = 0; j < sizes.size(); ++j) {
      const std::string n = std::to_string(j);
      s += " row = row * s" + n + " + INDEX(1, (p) * " + std::to_string(k) + " + " + n + ", s" + n + ");";
    }
    return s + "\n";
  }
  std::string parameters() const {
    std::string s = ", uint places";
    for (size_t j = 0; j < sizes.size(); ++j) s += ", uint s" + std::to_string(j);
    return s;
  }
  void give(Launch& launch) const {
    launch.with(static_cast<cl_uint>(places));
    for (const int64_t size : sizes) launch.with(static_cast<cl_uint>(size));
  }
};

}  // namespace

bool plan_gather_nd(const Site& site, hx_kernel& out) {
  const Positions at(site);
  const std::string word = word_name(site.in(0).dtype);
  const std::string body = at.text(site.in(1).dtype) +
                           "kernel void gather(BUFFER(0), BUFFER(1), BUFFER(2), uint n, uint inner" + at.parameters() +
                           ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  ROW_OF(i / inner, row)\n"
                           "  AT(" +
                           word + ", 2)[i] = AT(" + word + ", 0)[row * inner + i % inner];\n}\n";
  const int64_t n = count(site.out());
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "gather", std::vector<uint32_t>{0, 1, 2});
  launch.with(static_cast<cl_uint>(n)).with(static_cast<cl_uint>(at.inner));
  at.give(launch);
  launch.over(n);
  answer(out, std::move(work), "gather nd");
  return true;
}

// Computes the rows of all positions first, in the workspace after the links.
bool plan_scatter_nd(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const Positions at(site);
  const std::string given = site.text("reduction");
  const int64_t rows = at.batches * at.rows, places = at.batches * at.places;
  if (places * at.inner >= kMostElements || rows + 2 * places >= kMostElements)
    return declined("counts elements in 31 bits");
  const std::string body = at.text(site.in(1).dtype) + "kernel void rows(BUFFER(0), BUFFER(1), uint n, uint first" +
                           at.parameters() +
                           ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  ROW_OF(i, row)\n"
                           "  AT(uint, 0)[first + i] = row;\n}\n";
  Work work;
  work.launches.push_back(copy_whole(site.machine(), x, 0, 3));
  Launch& number = work.launches.emplace_back(site.machine(), body, "rows", std::vector<uint32_t>{site.workspace(), 1});
  number.with(static_cast<cl_uint>(places)).with(static_cast<cl_uint>(rows + places));
  at.give(number);
  number.over(places);
  scatter(work, site,
          {1, rows, at.inner, places, site.workspace(), 2, 3,
           "#define INDEX(n, i, size) (AT(uint, n)[(size) + indices + (i)])\n"},
          given.empty() ? "set" : given);
  hx_kernel& kernel = answer(out, std::move(work), "scatter nd");
  kernel.workspace = static_cast<uint64_t>(rows + 2 * places) * sizeof(cl_uint);
  kernel.in_place = 1;
  return true;
}

// NaN is the largest; of equal elements, the lower index is first. Each result is the best element after the previous
// one.
bool plan_top_k(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const std::string type = type_name(x.dtype);
  const std::string first = is_float(x.dtype)
                                ? "((a != a || b != b) ? (a != a && (b == b || i < j)) : (a > b || (a == b && i < j)))"
                                : "(a > b || (a == b && i < j))";
  const std::string body = "#define X(j) " + read(x.dtype, 0, "r * n + (j)") + "\nint first(" + type + " a, uint i, " +
                           type + " b, uint j) { return " + first +
                           "; }\nkernel void top(BUFFER(0), BUFFER(1), BUFFER(2), uint rows, uint n, uint k) {\n  "
                           "const uint r = get_global_id(0);\n  if (r >= rows) return;\n"
                           "  uint last = 0;\n  for (uint t = 0; t < k; ++t) {\n    uint best = n;\n"
                           "    for (uint j = 0; j < n; ++j)\n      if ((t == 0 || first(X(last), last, X(j), j)) && "
                           "(best == n || first(X(j), j, X(best), best))) best = j;\n"
                           "    " +
                           write(x.dtype, 1, "r * k + t", "X(best)") +
                           "\n    AT(long, 2)[r * k + t] = best;\n    last = best;\n  }\n}\n";
  const int64_t n = x.dims[x.rank - 1], k = site.integer("k"), rows = count(x) / n;
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "top", std::vector<uint32_t>{0, 1, 2});
  for (const int64_t v : {rows, n, k}) launch.with(static_cast<cl_uint>(v));
  launch.over(rows);
  answer(out, std::move(work), "top k");
  return true;
}

HM_PLANS(index, {"gather", plan_gather}, {"scatter_add", plan_scatter_add}, {"dynamic_slice", plan_dynamic_slice},
         {"update_slice", plan_update_slice}, {"gather_nd", plan_gather_nd}, {"scatter_nd", plan_scatter_nd},
         {"top_k", plan_top_k}, {"embedding", plan_gather}, {"embedding_grad", plan_embedding_grad})

}  // namespace harmonics::opencl
