// Elementwise operations and chains: one program per source text, for all shapes.
#include "chain.hpp"
#include "kernels/shared/scalar_texts.hpp"
#include "rows.hpp"

namespace harmonics::opencl {
namespace {

bool answer_chain(const Site& site, Chain& chain, const std::vector<uint32_t>& stored, hx_kernel& out,
                  const char* name) {
  if (!chain.has_room()) return false;
  chain.store(stored);
  const std::string head = "kernel void chain(" + chain.buffers() + "uint n" + chain.parameters() +
                           ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n";
  const int64_t n = count(site.out());
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), kernels::kScalarMacros + head + chain.body() + "}\n",
                                              "chain", all_buffers(site));
  launch.with(static_cast<cl_uint>(n));
  chain.give(launch);
  launch.over(n);
  answer(out, std::move(work), name).in_place = chain.in_place();
  return true;
}

// Operations that share one program. They are small, and drivers compile all of them about as fast as one.
struct Group {
  std::vector<std::string_view> ops;
  bool of_bool, to_bool;
};
const Group kGroups[] = {
    {{"neg", "abs", "sign", "floor", "ceil", "round", "sqrt", "rsqrt", "add", "sub", "mul", "div", "maximum",
      "minimum"},
     false,
     false},
    {{"exp", "expm1", "log", "log1p", "tanh", "erf", "logistic"}, false, false},
    {{"sin", "cos", "pow", "remainder"}, false, false},
    {{"tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "atan2"}, false, false},
    {{"bit_and", "bit_or", "bit_xor", "shift_left", "shift_right_logical", "shift_right_arithmetic"}, false, false},
    {{"equal", "less", "less_equal", "is_nan", "is_inf"}, false, true},
    {{"logical_not", "logical_and", "logical_or", "logical_xor"}, true, true},
};

// Operands are whole tensors of one type.
bool plan_grouped(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype, last = site.inputs() - 1;
  if (site.inputs() > 2 || site.in(last).dtype != dtype || count(site.in(0)) != count(site.out()) ||
      count(site.in(last)) != count(site.out()))
    return false;
  for (const Group& group : kGroups) {
    const auto op = std::find(group.ops.begin(), group.ops.end(), site.op());
    const uint32_t result = group.to_bool ? uint32_t{HX_BOOL} : dtype;
    if (op == group.ops.end() || site.out().dtype != result || group.of_bool != (dtype == HX_BOOL)) continue;
    const std::string type = type_name(dtype);
    std::string body = kernels::kScalarMacros +
                       ("kernel void one(BUFFER(0), BUFFER(1), BUFFER(2), uint n, uint op) {\n  const uint i = "
                        "get_global_id(0);\n  if (i >= n) return;\n  const " +
                        type + " a = ") +
                       read(dtype, 0, "i") + ", b = " + read(dtype, 1, "i") + ";\n  " + type_name(result) +
                       " y = 0;\n  switch (op) {\n";
    bool has_it = false;
    for (auto each = group.ops.begin(); each != group.ops.end(); ++each) {
      const std::string text = text_of({*each, dtype, result, "a", "b", ""});
      if (text.empty()) continue;
      has_it = has_it || each == op;
      body += "    case " + std::to_string(each - group.ops.begin()) + ": y = " + text + "; break;\n";
    }
    if (!has_it) return false;
    Work work;
    Launch& launch = work.launches.emplace_back(site.machine(), body + "  }\n  " + write(result, 2, "i", "y") + "\n}\n",
                                                "one", std::vector<uint32_t>{0, last, last + 1});
    launch.with(static_cast<cl_uint>(count(site.out())))
        .with(static_cast<cl_uint>(op - group.ops.begin()))
        .over(count(site.out()));
    answer(out, std::move(work), "elementwise").in_place = result == dtype ? (2u << last) - 1 : 0;
    return true;
  }
  return false;
}

}  // namespace

bool plan_elementwise(const Site& site, hx_kernel& out) {
  if (plan_grouped(site, out)) return true;
  Chain chain(site, site.out());
  chain.read_inputs();
  if (!chain.compute(site.op(), 0, 1, 2, site.out().dtype)) return false;
  return answer_chain(site, chain, {site.inputs()}, out, "elementwise");
}

// Types do not matter where elements are only copied.
bool plan_select(const Site& site, hx_kernel& out) {
  static const uint32_t words[] = {0, HX_U8, HX_U16, 0, HX_U32, 0, 0, 0, HX_U64};
  Chain chain(site, site.out(), words);
  chain.read_inputs();
  const uint32_t y = chain.add(words[width(site.out().dtype)], "r0 ? r1 : r2");
  return answer_chain(site, chain, {y}, out, "select");
}

// One program converts a type to all types.
bool plan_cast(const Site& site, hx_kernel& out) {
  const uint32_t from = site.in(0).dtype;
  std::string body = std::string(
                         "kernel void one(BUFFER(0), BUFFER(1), uint n, uint to) {\n  const uint i = "
                         "get_global_id(0);\n  if (i >= n) return;\n  const ") +
                     type_name(from) + " a = " + read(from, 0, "i") + ";\n  switch (to) {\n";
  for (uint32_t to = HX_BOOL; to <= HX_F64; ++to)
    if (type_name(to) && (to != HX_F64 || site.machine().has_f64()))
      body += "    case " + std::to_string(to) + ": " + write(to, 1, "i", text_of({"cast", from, to, "a", "", ""})) +
              " break;\n";
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body + "  }\n}\n", "one", std::vector<uint32_t>{0, 1});
  launch.with(static_cast<cl_uint>(count(site.out()))).with(site.out().dtype).over(count(site.out()));
  answer(out, std::move(work), "cast").in_place = width(from) == width(site.out().dtype) ? 1 : 0;
  return true;
}

bool plan_chain(const Site& site, hx_kernel& out) {
  Chain chain(site, site.out());
  chain.read_inputs();
  if (!chain.compute_all()) return false;
  return answer_chain(site, chain, {site.raw().chain_outputs, site.raw().chain_outputs + site.outputs()}, out,
                      "elementwise chain");
}

// y = random < rate ? 0 : x / (1 - rate), as in the body; the gradient applies the same function to dy.
bool plan_dropout(const Site& site, hx_kernel& out) {
  const uint32_t random = site.op() == "dropout_grad" ? 0 : 1, dtype = site.out().dtype;
  if (!is_float(dtype) || site.inputs() != 2 || site.in(1 - random).dtype != dtype)
    return declined("drops elements of one type only");
  Chain chain(site, site.out());
  chain.read_inputs();
  const double rate = site.number("rate");
  const std::string r = "r" + std::to_string(random), x = "r" + std::to_string(1 - random), type = type_name(dtype);
  const uint32_t kept = chain.add(dtype, x + " * " + rounded(dtype, literal(dtype, 1 / (1 - rate))));
  const uint32_t y = chain.add(dtype, r + " < " + rounded(site.in(random).dtype, literal(site.in(random).dtype, rate)) +
                                          " ? (" + type + ")0 : r" + std::to_string(kept));
  return answer_chain(site, chain, {y}, out, "dropout");
}

HM_PLANS(elementwise, {"fused_elementwise", plan_chain}, {"select", plan_select}, {"cast", plan_cast},
         {"dropout", plan_dropout}, {"dropout_grad", plan_dropout})

}  // namespace harmonics::opencl
