// Reductions along any axes, searches and running sums along one.
#include "families.hpp"

namespace harmonics::opencl {
namespace {

constexpr int64_t kShort = 64;    // terms that one thread joins without thinking
constexpr int64_t kMany = 2048;   // results that keep a device busy with a thread each
constexpr size_t kGroup = 64;

std::string beats(uint32_t dtype, bool largest) {
  const std::string compare = largest ? "b > a" : "b < a";
  return is_float(dtype) ? "((a != a || b != b) ? !(a != a) : " + compare + ")" : "(" + compare + ")";
}

std::string start_of(uint32_t dtype, bool largest) {
  switch (dtype) {
    case HX_F16:
    case HX_BF16:
    case HX_F32:
    case HX_F64: return largest ? "-INFINITY" : "INFINITY";
    case HX_BOOL: return largest ? "0" : "1";
    case HX_U8: return largest ? "0" : "UCHAR_MAX";
    case HX_I8: return largest ? "CHAR_MIN" : "CHAR_MAX";
    case HX_I16: return largest ? "SHRT_MIN" : "SHRT_MAX";
    case HX_U16: return largest ? "0" : "USHRT_MAX";
    case HX_I32: return largest ? "INT_MIN" : "INT_MAX";
    case HX_U32: return largest ? "0" : "UINT_MAX";
    case HX_I64: return largest ? "LONG_MIN" : "LONG_MAX";
    default: return largest ? "0" : "ULONG_MAX";
  }
}

// How two become one, where b comes later, and what the first is joined to: `op` says which, so that one program has all of them.
std::string join_macros(uint32_t dtype) {
  const std::string type = sum_name(dtype);
  return "#define SUM " + type + "\n#define START (op == 0 ? (SUM)0 : op == 1 ? (SUM)1 : op == 2 ? (SUM)" + start_of(dtype, true) + " : (SUM)" + start_of(dtype, false) +
         ")\nSUM joined(uint op, SUM a, SUM b) {\n  switch (op) {\n    case 0: return a + b;\n    case 1: return a * b;\n    case 2: return " + beats(dtype, true) +
         " ? b : a;\n    default: return " + beats(dtype, false) + " ? b : a;\n  }\n}\n";
}
uint32_t number_of(std::string_view op) { return op == "reduce_sum" ? 0 : op == "reduce_prod" ? 1 : op == "reduce_max" ? 2 : 3; }

}  // namespace

bool plan_reduce(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const auto axes = site.integers("axes");
  const auto own = strides(x);
  Walk kept{{}, {{}}, {0}}, reduced{{}, {{}}, {0}};
  for (uint32_t i = 0; i < x.rank; ++i) {
    Walk& w = std::find(axes.begin(), axes.end(), i) == axes.end() ? kept : reduced;
    w.sizes.push_back(x.dims[i]);
    w.strides[0].push_back(own[i]);
  }
  kept.join(), reduced.join();
  const int64_t results = count(site.out()), terms = count(x) / std::max<int64_t>(results, 1);
  const bool by_group = terms > kShort && results < kMany;
  std::string body = join_macros(x.dtype) + "kernel void reduce(BUFFER(0), BUFFER(1), uint op, uint results, uint terms" + kept.parameters("k_") + reduced.parameters("r_") +
                     ") {\n";
  const std::string loop = reduced.text("j", "r_", {"at"});
  const std::string load = read(x.dtype, 0, "first + at");
  const std::string joined = "    sum = joined(op, sum, (SUM)" + load + ");\n";
  if (by_group) {
    body += "  local SUM parts[" + std::to_string(kGroup) + "];\n  const uint i = get_group_id(0), me = get_local_id(0);\n" + kept.text("i", "k_", {"first"}) +
            "  const uint each = (terms + " + std::to_string(kGroup - 1) + ") / " + std::to_string(kGroup) + ", end = min(terms, (me + 1) * each);\n  SUM sum = START;\n" +
            "  for (uint j = me * each; j < end; ++j) {\n" + loop + joined + "  }\n  parts[me] = sum;\n  for (uint stride = 1; stride < " + std::to_string(kGroup) +
            "; stride *= 2) {\n    barrier(CLK_LOCAL_MEM_FENCE);\n    if (me % (2 * stride) == 0) parts[me] = joined(op, parts[me], parts[me + stride]);\n  }\n  if (me == 0) " +
            write(x.dtype, 1, "i", "parts[0]") + "\n}\n";
  } else {
    body += "  const uint i = get_global_id(0);\n  if (i >= results) return;\n" + kept.text("i", "k_", {"first"}) + "  SUM sum = START;\n  if (terms == 1) { const uint j = 0; " + loop + " " +
            write(x.dtype, 1, "i", load) + " return; }\n  for (uint j = 0; j < terms; ++j) {\n" + loop + joined + "  }\n  " + write(x.dtype, 1, "i", "sum") + "\n}\n";
  }
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "reduce", std::vector<uint32_t>{0, 1});
  launch.with(number_of(site.op())).with(static_cast<cl_uint>(results)).with(static_cast<cl_uint>(terms)).with_all(kept.values()).with_all(reduced.values());
  if (by_group) launch.groups(static_cast<size_t>(results), 1, 1, kGroup);
  else launch.over(results);
  answer(out, std::move(work), by_group ? "reduce by groups" : "reduce");
  return true;
}

namespace {

// One axis between what stands before and after it.
struct Lanes {
  int64_t size, inner, all;
  Lanes(const hx_type& x, int64_t axis) : size(x.dims[axis]), inner(strides(x)[static_cast<size_t>(axis)]), all(count(x) / std::max<int64_t>(size, 1)) {}
};

const char* kLane = "  const uint i = get_global_id(0);\n  if (i >= lanes) return;\n  const uint first = i / inner * size * inner + i % inner;\n";

bool answer_lanes(const Site& site, const std::string& body, const char* name, hx_kernel& out) {
  const Lanes lanes(site.in(0), site.integer("axis"));
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "lane", std::vector<uint32_t>{0, 1});
  launch.with(static_cast<cl_uint>(lanes.all)).with(static_cast<cl_uint>(lanes.size)).with(static_cast<cl_uint>(lanes.inner)).over(lanes.all);
  answer(out, std::move(work), name);
  return true;
}

}  // namespace

bool plan_arg_extreme(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  const std::string type = type_name(dtype), load = read(dtype, 0, "first + j * inner");
  return answer_lanes(site,
                      std::string("kernel void lane(BUFFER(0), BUFFER(1), uint lanes, uint size, uint inner) {\n") + kLane + "  " + type +
                          " a = " + read(dtype, 0, "first") + ";\n  uint best = 0;\n  for (uint j = 1; j < size; ++j) {\n    const " + type + " b = " + load + ";\n    if (" +
                          beats(dtype, site.op() == "argmax") + ") { a = b; best = j; }\n  }\n  AT(long, 1)[i] = best;\n}\n",
                      site.op() == "argmax" ? "argmax" : "argmin", out);
}

bool plan_cumsum(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  const std::string sum = sum_name(dtype), at = "first + j * inner";
  return answer_lanes(site,
                      std::string("kernel void lane(BUFFER(0), BUFFER(1), uint lanes, uint size, uint inner) {\n") + kLane + "  " + sum +
                          " sum = 0;\n  for (uint j = 0; j < size; ++j) {\n    sum += (" + sum + ")" + read(dtype, 0, at) + ";\n    " +
                          write(dtype, 1, at, "sum") + "\n  }\n}\n",
                      "cumsum", out);
}

}  // namespace harmonics::opencl
