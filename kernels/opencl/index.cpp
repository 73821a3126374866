// Where numbers decide which elements are read or written. What is outside is clamped.
#include "families.hpp"

namespace harmonics::opencl {
namespace {

const char* kNoType = "computes f32, f64 and whole numbers, not f16 and bf16";
const char* kWords[] = {nullptr, "uchar", "ushort", nullptr, "uint", nullptr, nullptr, nullptr, "ulong"};

// "INDEX(i)": index i of buffer 1, held to [0, size).
std::string index_macro(uint32_t dtype) {
  const std::string type = type_name(dtype);
  return "#define INDEX(n, i, size) ((uint)clamp((long)min(AT(" + type + ", n)[i], (" + type + ")" + (width(dtype) == 1 ? (is_signed(dtype) ? "CHAR_MAX" : "UCHAR_MAX") :
         width(dtype) == 2 ? (is_signed(dtype) ? "SHRT_MAX" : "USHRT_MAX") : width(dtype) == 4 ? "INT_MAX" : "LONG_MAX") + "), 0L, (long)(size) - 1))\n";
}

struct Axis {
  int64_t outer, size, inner;
  Axis(const hx_type& x, int64_t axis) : size(x.dims[axis]), inner(strides(x)[static_cast<size_t>(axis)]) {
    outer = count(x) / std::max<int64_t>(1, size * inner);
  }
};

}  // namespace

bool plan_gather(const Site& site, hx_kernel& out) {
  const Axis x(site.in(0), site.integer("axis"));
  const std::string word = kWords[width(site.in(0).dtype)];
  const std::string body = index_macro(site.in(1).dtype) +
                           "kernel void gather(BUFFER(0), BUFFER(1), BUFFER(2), uint n, uint size, uint inner, uint indices) {\n  const uint i = get_global_id(0);\n"
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

// Repeated indices are added in their order: a thread goes through all of them for its column.
bool plan_scatter_add(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  if (!type_name(dtype)) return declined(kNoType);
  const Axis x(site.in(0), site.integer("axis"));
  const std::string type = type_name(dtype);
  const std::string body = index_macro(site.in(1).dtype) +
                           "kernel void scatter(BUFFER(0), BUFFER(1), BUFFER(2), uint n, uint size, uint inner, uint indices) {\n  const uint i = get_global_id(0);\n"
                           "  if (i >= n) return;\n  const uint o = i / inner, c = i % inner;\n  for (uint k = 0; k < indices; ++k)\n    AT(" +
                           type + ", 2)[(o * size + INDEX(0, k, size)) * inner + c] += AT(" + type + ", 1)[(o * indices + k) * inner + c];\n}\n";
  const int64_t n = x.outer * x.inner;
  Work work;
  work.launches.push_back(copy_along(site.machine(), width(dtype), 0, 3, {{count(site.in(0))}, {{1}, {1}}, {0, 0}}));
  Launch& launch = work.launches.emplace_back(site.machine(), body, "scatter", std::vector<uint32_t>{1, 2, 3});
  for (const int64_t v : {n, x.size, x.inner, count(site.in(1))}) launch.with(static_cast<cl_uint>(v));
  launch.over(n);
  answer(out, std::move(work), "scatter add");
  return true;
}

namespace {

// "uint place": the element of a block at starts that the device reads.
std::string block_text(const hx_type& whole, uint32_t index_dtype, const char* starts) {
  std::string s = index_macro(index_dtype) + "#define PLACE(i, place) uint place = 0; { uint rest = i, wide = 1;";
  for (uint32_t a = whole.rank; a-- > 0;) {
    const std::string k = std::to_string(a);
    s += " place += (rest % d" + k + " + INDEX(" + starts + ", " + k + ", s" + k + " - d" + k + " + 1)) * wide; rest /= d" + k + "; wide *= s" + k + ";";
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
  for (uint32_t a = 0; a < whole.rank; ++a) launch.with(static_cast<cl_uint>(whole.dims[a])).with(static_cast<cl_uint>(block.dims[a]));
  launch.over(count(block));
}

}  // namespace

bool plan_dynamic_slice(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &y = site.out();
  const std::string word = kWords[width(x.dtype)];
  const std::string body = block_text(x, site.in(1).dtype, "1") + "kernel void block(BUFFER(0), BUFFER(1), BUFFER(2), uint n" + block_parameters(x.rank) +
                           ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  PLACE(i, place)\n  AT(" + word + ", 2)[i] = AT(" + word + ", 0)[place];\n}\n";
  Work work;
  give_block(work.launches.emplace_back(site.machine(), body, "block", std::vector<uint32_t>{0, 1, 2}), x, y);
  answer(out, std::move(work), "dynamic slice");
  return true;
}

bool plan_update_slice(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &block = site.in(1);
  const std::string word = kWords[width(x.dtype)];
  const std::string body = block_text(x, site.in(2).dtype, "1") + "kernel void block(BUFFER(0), BUFFER(1), BUFFER(2), uint n" + block_parameters(x.rank) +
                           ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  PLACE(i, place)\n  AT(" + word + ", 2)[place] = AT(" + word + ", 0)[i];\n}\n";
  Work work;
  work.launches.push_back(copy_along(site.machine(), width(x.dtype), 0, 3, {{count(x)}, {{1}, {1}}, {0, 0}}));
  give_block(work.launches.emplace_back(site.machine(), body, "block", std::vector<uint32_t>{1, 2, 3}), x, block);
  answer(out, std::move(work), "update slice");
  return true;
}

// NaN counts as largest, the lower index comes first among equals: each place takes the best of those that come after the last.
bool plan_top_k(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!type_name(x.dtype)) return declined(kNoType);
  const std::string type = type_name(x.dtype);
  const std::string first = is_float(x.dtype) ? "((a != a || b != b) ? (a != a && (b == b || i < j)) : (a > b || (a == b && i < j)))" : "(a > b || (a == b && i < j))";
  const std::string body = "int first(" + type + " a, uint i, " + type + " b, uint j) { return " + first +
                           "; }\nkernel void top(BUFFER(0), BUFFER(1), BUFFER(2), uint rows, uint n, uint k) {\n  const uint r = get_global_id(0);\n  if (r >= rows) return;\n"
                           "  global const " + type + "* x = AT(" + type + ", 0) + r * n;\n  uint last = 0;\n  for (uint t = 0; t < k; ++t) {\n    uint best = n;\n"
                           "    for (uint j = 0; j < n; ++j)\n      if ((t == 0 || first(x[last], last, x[j], j)) && (best == n || first(x[j], j, x[best], best))) best = j;\n"
                           "    AT(" + type + ", 1)[r * k + t] = x[best];\n    AT(long, 2)[r * k + t] = best;\n    last = best;\n  }\n}\n";
  const int64_t n = x.dims[x.rank - 1], k = site.integer("k"), rows = count(x) / n;
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "top", std::vector<uint32_t>{0, 1, 2});
  for (const int64_t v : {rows, n, k}) launch.with(static_cast<cl_uint>(v));
  launch.over(rows);
  answer(out, std::move(work), "top k");
  return true;
}

}  // namespace harmonics::opencl
