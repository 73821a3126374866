// Reductions of tensors or fused chains along any axes; argmax, argmin and cumsum along one axis.
#include "chain.hpp"
#include "kernels/shared/scalar_texts.hpp"
#include "rows.hpp"

namespace harmonics::opencl {
namespace {

constexpr int64_t kShort = 64;   // up to this many terms, one thread per result
constexpr int64_t kMany = 2048;  // from this many results, one thread each occupies the device
constexpr size_t kReduceGroup = 64;
// A chain with fewer results and more elements would have too few threads.
constexpr int64_t kLeastOfChain = 64, kMostOfChain = 1 << 18;
bool is_by_group(int64_t results, int64_t terms) { return terms > kShort && results < kMany; }

std::string beats(uint32_t dtype, bool largest) {
  const std::string compare = largest ? "b > a" : "b < a";
  return is_float(dtype) ? "((a != a || b != b) ? !(a != a) : " + compare + ")" : "(" + compare + ")";
}

std::string start_of(uint32_t dtype, bool largest) {
  switch (dtype) {
    case HX_F16:
    case HX_BF16:
    case HX_F32:
    case HX_F64:
      return largest ? "-INFINITY" : "INFINITY";
    case HX_BOOL:
      return largest ? "0" : "1";
    case HX_U8:
      return largest ? "0" : "UCHAR_MAX";
    case HX_I8:
      return largest ? "CHAR_MIN" : "CHAR_MAX";
    case HX_I16:
      return largest ? "SHRT_MIN" : "SHRT_MAX";
    case HX_U16:
      return largest ? "0" : "USHRT_MAX";
    case HX_I32:
      return largest ? "INT_MIN" : "INT_MAX";
    case HX_U32:
      return largest ? "0" : "UINT_MAX";
    case HX_I64:
      return largest ? "LONG_MIN" : "LONG_MAX";
    default:
      return largest ? "0" : "ULONG_MAX";
  }
}

// Macros for the initial value and the combination of two terms (b is the later one), selected by `op`, so that one
// program contains all reductions.
std::string join_macros(uint32_t dtype) {
  const std::string type = sum_name(dtype);
  return "#define SUM " + type + "\n#define START (op == 0 ? (SUM)0 : op == 1 ? (SUM)1 : op == 2 ? (SUM)" +
         start_of(dtype, true) + " : (SUM)" + start_of(dtype, false) +
         ")\nSUM joined(uint op, SUM a, SUM b) {\n  switch (op) {\n    case 0: return a + b;\n    case 1: return a * "
         "b;\n    case 2: return " +
         beats(dtype, true) + " ? b : a;\n    default: return " + beats(dtype, false) + " ? b : a;\n  }\n}\n";
}
uint32_t number_of(std::string_view op) {
  return op == "reduce_sum" ? 0 : op == "reduce_prod" ? 1 : op == "reduce_max" ? 2 : 3;
}

// The terms of a reduction: `statements` define `term` from element `i` of `whole`.
struct Terms {
  uint32_t dtype;
  std::vector<uint32_t> buffers;
  std::string declared, parameters, statements;  // "BUFFER(0), BUFFER(1), ", ", uint w_d0 ..."
  uint32_t to;                                   // buffer number
};

Launch reduction(const Site& site, const hx_type& whole, std::string_view op, int64_t results, const Terms& of,
                 const Chain* chain) {
  auto [kept, reduced] = kernels::reduction_walks(whole, site.integers("axes"));
  widen(kept, 2);  // one program for up to two axes
  const int64_t terms = count(whole) / std::max<int64_t>(results, 1);
  const bool by_group = is_by_group(results, terms);
  std::string body = kernels::kScalarMacros + join_macros(of.dtype) + "kernel void reduce(" + of.declared +
                     "uint op, uint results, uint terms" + walk_parameters(kept, "k_") +
                     walk_parameters(reduced, "r_") + of.parameters + ") {\n";
  const std::string term = walk_text(reduced, "j", "r_", {"at"}) + "    const uint i = first + at;\n" + of.statements;
  if (by_group) {
    body += "  local SUM parts[" + std::to_string(kReduceGroup) +
            "];\n  const uint result = get_group_id(0), me = get_local_id(0);\n" +
            walk_text(kept, "result", "k_", {"first"}) + "  const uint each = (terms + " +
            std::to_string(kReduceGroup - 1) + ") / " + std::to_string(kReduceGroup) +
            ", end = min(terms, (me + 1) * each);\n  SUM sum = START;\n" +
            "  for (uint j = me * each; j < end; ++j) {\n" + term +
            "    sum = joined(op, sum, (SUM)term);\n  }\n  parts[me] = sum;\n  for (uint stride = 1; stride < " +
            std::to_string(kReduceGroup) +
            "; stride *= 2) {\n    barrier(CLK_LOCAL_MEM_FENCE);\n    if (me % (2 * stride) == 0) parts[me] = "
            "joined(op, parts[me], parts[me + stride]);\n  }\n" +
            "  if (me == 0) " + write(of.dtype, of.to, "result", "parts[0]") + "\n}\n";
  } else {
    body += "  const uint result = get_global_id(0);\n  if (result >= results) return;\n" +
            walk_text(kept, "result", "k_", {"first"}) + "  SUM sum = START;\n  for (uint j = 0; j < terms; ++j) {\n" +
            term + "    sum = terms == 1 ? (SUM)term : joined(op, sum, (SUM)term);\n  }\n  " +
            write(of.dtype, of.to, "result", "sum") + "\n}\n";
  }
  Launch launch(site.machine(), body, "reduce", of.buffers);
  launch.with(number_of(op))
      .with(static_cast<cl_uint>(results))
      .with(static_cast<cl_uint>(terms))
      .with_all(walk_values(kept))
      .with_all(walk_values(reduced));
  if (chain) chain->give(launch);
  if (by_group)
    launch.groups(static_cast<size_t>(results), 1, 1, kReduceGroup);
  else
    launch.over(results);
  return launch;
}

}  // namespace

bool plan_reduce(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  const int64_t results = count(site.out());
  Work work;
  work.launches.push_back(
      reduction(site, site.in(0), site.op(), results,
                {dtype,
                 {0, 1},
                 "BUFFER(0), BUFFER(1), ",
                 "",
                 std::string("    const ") + type_name(dtype) + " term = " + read(dtype, 0, "i") + ";\n",
                 1},
                nullptr));
  answer(out, std::move(work), is_by_group(results, count(site.in(0)) / results) ? "reduce by groups" : "reduce");
  return true;
}

// Stores all results of the chain except the last one, which is reduced as it is computed, in the order and with the
// bits of a reduction of the stored result.
bool plan_fused_reduce(const Site& site, hx_kernel& out) {
  const uint32_t last = site.outputs() - 1, dtype = site.out(last).dtype;
  const uint32_t* const registers = site.raw().chain_outputs;
  hx_type whole{};
  whole.dtype = dtype;
  for (const int64_t d : site.integers("shape")) whole.dims[whole.rank++] = d;
  const int64_t results = count(site.out(last)), all = count(whole);
  if (all == 0 || all >= kMostElements) return declined("counts elements in 31 bits");
  if (results < kLeastOfChain && all > kMostOfChain)
    return declined("has too few threads for long chains with few results");
  Chain chain(site, whole);
  chain.read_inputs();
  if (!chain.has_room() || !chain.compute_all()) return false;
  if (chain.type(registers[last]) != dtype) return declined("reduces results of the chain only");
  chain.store({registers, registers + last});
  Terms terms{dtype,
              all_buffers(site),
              chain.buffers(),
              chain.parameters(),
              chain.body() + "    const " + type_name(dtype) + " term = r" + std::to_string(registers[last]) + ";\n",
              site.inputs() + last};
  Work work;
  Launch launch = reduction(site, whole, site.text("reduction"), results, terms, &chain);
  work.launches.push_back(std::move(launch));
  answer(out, std::move(work), "chain and reduce").in_place = last > 0 ? chain.in_place() : 0;
  return true;
}

namespace {

// One axis, and the elements around it.
struct Lanes {
  int64_t size, inner, all;
  Lanes(const hx_type& x, int64_t axis)
      : size(x.dims[axis]), inner(strides(x)[static_cast<size_t>(axis)]), all(count(x) / std::max<int64_t>(size, 1)) {}
};

const char* kLane =
    "  const uint i = get_global_id(0);\n  if (i >= lanes) return;\n  const uint first = i / inner * size * inner + i "
    "% inner;\n";

bool answer_lanes(const Site& site, const std::string& body, const char* name, hx_kernel& out) {
  const Lanes lanes(site.in(0), site.integer("axis"));
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "lane", std::vector<uint32_t>{0, 1});
  launch.with(static_cast<cl_uint>(lanes.all))
      .with(static_cast<cl_uint>(lanes.size))
      .with(static_cast<cl_uint>(lanes.inner))
      .over(lanes.all);
  answer(out, std::move(work), name);
  return true;
}

}  // namespace

bool plan_arg_extreme(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  const std::string type = type_name(dtype), load = read(dtype, 0, "first + j * inner");
  return answer_lanes(site,
                      std::string("kernel void lane(BUFFER(0), BUFFER(1), uint lanes, uint size, uint inner) {\n") +
                          kLane + "  " + type + " a = " + read(dtype, 0, "first") +
                          ";\n  uint best = 0;\n  for (uint j = 1; j < size; ++j) {\n    const " + type +
                          " b = " + load + ";\n    if (" + beats(dtype, site.op() == "argmax") +
                          ") { a = b; best = j; }\n  }\n  AT(long, 1)[i] = best;\n}\n",
                      site.op() == "argmax" ? "argmax" : "argmin", out);
}

bool plan_cumsum(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  const std::string sum = sum_name(dtype), at = "first + j * inner";
  return answer_lanes(site,
                      std::string("kernel void lane(BUFFER(0), BUFFER(1), uint lanes, uint size, uint inner) {\n") +
                          kLane + "  " + sum + " sum = 0;\n  for (uint j = 0; j < size; ++j) {\n    sum += (" + sum +
                          ")" + read(dtype, 0, at) + ";\n    " + write(dtype, 1, at, "sum") + "\n  }\n}\n",
                      "cumsum", out);
}

HM_PLANS(reduce, {"reduce_sum", plan_reduce}, {"reduce_max", plan_reduce}, {"reduce_min", plan_reduce},
         {"reduce_prod", plan_reduce}, {"argmax", plan_arg_extreme}, {"argmin", plan_arg_extreme},
         {"cumsum", plan_cumsum}, {"fused_reduce", plan_fused_reduce})

}  // namespace harmonics::opencl
