// Elementwise operations and chains of them: a program for each text, whatever the shapes.
#include "families.hpp"
#include "kernels/shared/scalar_texts.hpp"

namespace harmonics::opencl {
namespace {

constexpr uint32_t kMostBuffers = 32;  // drivers take 1024 bytes of arguments at least

struct Operation {
  std::string_view op;
  uint32_t operands;  // element type of them
  uint32_t result;    // of it
  std::string a, b, c;
};

// To bool: not zero. From floats to whole numbers: cut, held to the range, NaN is 0.
std::string cast_text(const Operation& o) {
  if (o.result == HX_BOOL) return "(uchar)(" + o.a + " != 0)";
  const std::string to = type_name(o.result);
  if (is_float(o.operands) && !is_float(o.result)) return "(" + o.a + " != " + o.a + " ? (" + to + ")0 : convert_" + to + "_sat_rtz(" + o.a + "))";
  return is_float(o.result) ? "convert_" + to + "(" + o.a + ")" : "(" + to + ")" + o.a;
}

// "": there is none in these types.
std::string text_of(const Operation& o) {
  if (o.op == "cast") return cast_text(o);
  const kernels::Sort sort = o.operands == HX_BOOL ? kernels::Sort::flag : is_float(o.operands) ? kernels::Sort::real : kernels::Sort::whole;
  return kernels::scalar_text(o.op, sort, {o.a, o.b, o.c, type_name(o.operands), word_name(o.operands)});
}

// How an input lies against the result: element by element, one number, or stretched.
struct Lie {
  enum { same, one, stretched } how = same;
  Walk walk;
};

Lie lie_of(const hx_type& x, const hx_type& y) {
  if (count(x) == count(y)) return {};
  if (count(x) == 1) return {Lie::one, {}};
  Walk walk{dims(y), {std::vector<int64_t>(y.rank, 0)}, {0}};
  const auto own = strides(x);
  for (uint32_t i = 0; i < x.rank; ++i) walk.strides[0][y.rank - x.rank + i] = x.dims[i] == 1 ? 0 : own[i];
  walk.join();
  return {Lie::stretched, std::move(walk)};
}

class Chain {
 public:
  // `words`, by width: types in place of the site's own.
  explicit Chain(const Site& site, const uint32_t* words = nullptr) : site_(site), words_(words), n_(count(site.out())) {}

  void read_inputs() {
    for (uint32_t i = 0; i < site_.inputs(); ++i) {
      const uint32_t dtype = site_.in(i).dtype;
      types_.push_back(words_ ? words_[width(dtype)] : dtype);
      lies_.push_back(lie_of(site_.in(i), site_.out()));
      const std::string k = std::to_string(i);
      std::string place = lies_[i].how == Lie::one ? "0" : "i";
      if (lies_[i].how == Lie::stretched) {
        const std::string prefix = "w" + k + "_";
        place = "x" + k;
        parameters_ += lies_[i].walk.parameters(prefix);
        body_ += lies_[i].walk.text("i", prefix, {place});
      }
      define(i, types_.back(), read(types_.back(), i, place));
    }
  }

  bool compute(std::string_view op, uint32_t a, uint32_t b, uint32_t c, uint32_t result) {
    const auto name = [&](uint32_t r) { return r < types_.size() ? "r" + std::to_string(r) : std::string("0"); };
    const uint32_t operands = types_.at(a);
    const std::string text = text_of({op, operands, result, name(a), name(b), name(c)});
    if (text.empty()) return declined(std::string("has no ") + std::string(op) + " of these types");
    add(result, text);
    return true;
  }
  // The register of a result that no primitive gives, from registers r0, r1, ...
  uint32_t add(uint32_t result, const std::string& text) {
    define(static_cast<uint32_t>(types_.size()), result, rounded(result, text));
    types_.push_back(result);
    return static_cast<uint32_t>(types_.size() - 1);
  }

  bool finish(const std::vector<uint32_t>& stored, hx_kernel& out, const char* name) {
    const uint32_t buffers = site_.inputs() + site_.outputs();
    if (buffers > kMostBuffers) return declined("so many operands");
    std::string head = "kernel void chain(";
    std::vector<uint32_t> all;
    for (uint32_t i = 0; i < buffers; ++i) {
      head += "BUFFER(" + std::to_string(i) + "), ";
      all.push_back(i);
    }
    for (uint32_t k = 0; k < stored.size(); ++k)
      body_ += "  " + write(types_.at(stored[k]), site_.inputs() + k, "i", "r" + std::to_string(stored[k])) + "\n";
    head += "uint n" + parameters_ + ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n";
    Work work;
    Launch& launch = work.launches.emplace_back(site_.machine(), kernels::kScalarMacros + head + body_ + "}\n", "chain", all);
    launch.with(static_cast<cl_uint>(n_));
    for (const Lie& lie : lies_)
      if (lie.how == Lie::stretched) launch.with_all(lie.walk.values());
    launch.over(n_);
    hx_kernel& kernel = answer(out, std::move(work), name);
    for (uint32_t i = 0; i < site_.inputs() && i < 32; ++i)
      if (lies_[i].how == Lie::same && width(site_.in(i).dtype) == width(site_.out().dtype)) kernel.in_place |= 1u << i;
    return true;
  }

 private:
  void define(uint32_t r, uint32_t dtype, const std::string& text) { body_ += "  const " + std::string(type_name(dtype)) + " r" + std::to_string(r) + " = " + text + ";\n"; }

  const Site& site_;
  const uint32_t* words_;
  int64_t n_;
  std::vector<uint32_t> types_;  // by register
  std::vector<Lie> lies_;
  std::string parameters_, body_;
};

// Operations that one program has all of: they are many, small and seldom alone, and a driver takes as long for one of them as for all.
struct Group {
  std::vector<std::string_view> ops;
  bool of_bool, to_bool;
};
const Group kGroups[] = {
    {{"neg", "abs", "sign", "floor", "ceil", "round", "sqrt", "rsqrt", "add", "sub", "mul", "div", "maximum", "minimum"}, false, false},
    {{"exp", "expm1", "log", "log1p", "tanh", "erf", "logistic"}, false, false},
    {{"sin", "cos", "pow", "remainder"}, false, false},
    {{"equal", "less", "less_equal"}, false, true},
    {{"logical_not", "logical_and", "logical_or", "logical_xor"}, true, true},
};

// Whole tensors of one type.
bool plan_grouped(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype, last = site.inputs() - 1;
  if (site.inputs() > 2 || site.in(last).dtype != dtype || count(site.in(0)) != count(site.out()) || count(site.in(last)) != count(site.out())) return false;
  for (const Group& group : kGroups) {
    const auto op = std::find(group.ops.begin(), group.ops.end(), site.op());
    const uint32_t result = group.to_bool ? uint32_t{HX_BOOL} : dtype;
    if (op == group.ops.end() || site.out().dtype != result || group.of_bool != (dtype == HX_BOOL)) continue;
    const std::string type = type_name(dtype);
    std::string body = kernels::kScalarMacros + ("kernel void one(BUFFER(0), BUFFER(1), BUFFER(2), uint n, uint op) {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  const " + type + " a = ") +
                       read(dtype, 0, "i") + ", b = " + read(dtype, 1, "i") + ";\n  " + type_name(result) + " y = 0;\n  switch (op) {\n";
    bool has_it = false;
    for (auto each = group.ops.begin(); each != group.ops.end(); ++each) {
      const std::string text = text_of({*each, dtype, result, "a", "b", ""});
      if (text.empty()) continue;
      has_it = has_it || each == op;
      body += "    case " + std::to_string(each - group.ops.begin()) + ": y = " + text + "; break;\n";
    }
    if (!has_it) return false;
    Work work;
    Launch& launch = work.launches.emplace_back(site.machine(), body + "  }\n  " + write(result, 2, "i", "y") + "\n}\n", "one", std::vector<uint32_t>{0, last, last + 1});
    launch.with(static_cast<cl_uint>(count(site.out()))).with(static_cast<cl_uint>(op - group.ops.begin())).over(count(site.out()));
    answer(out, std::move(work), "elementwise").in_place = result == dtype ? (2u << last) - 1 : 0;
    return true;
  }
  return false;
}

}  // namespace

bool plan_elementwise(const Site& site, hx_kernel& out) {
  if (plan_grouped(site, out)) return true;
  Chain chain(site);
  chain.read_inputs();
  if (!chain.compute(site.op(), 0, 1, 2, site.out().dtype)) return false;
  return chain.finish({site.inputs()}, out, "elementwise");
}

// Of what type numbers are does not matter where they are taken as they are.
bool plan_select(const Site& site, hx_kernel& out) {
  static const uint32_t words[] = {0, HX_U8, HX_U16, 0, HX_U32, 0, 0, 0, HX_U64};
  Chain chain(site, words);
  chain.read_inputs();
  const uint32_t y = chain.add(words[width(site.out().dtype)], "r0 ? r1 : r2");
  return chain.finish({y}, out, "select");
}

// All types that one becomes, in one program.
bool plan_cast(const Site& site, hx_kernel& out) {
  const uint32_t from = site.in(0).dtype;
  std::string body = std::string("kernel void one(BUFFER(0), BUFFER(1), uint n, uint to) {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  const ") + type_name(from) + " a = " +
                     read(from, 0, "i") + ";\n  switch (to) {\n";
  for (uint32_t to = HX_BOOL; to <= HX_F64; ++to)
    if (type_name(to) && (to != HX_F64 || site.machine().has_f64())) body += "    case " + std::to_string(to) + ": " + write(to, 1, "i", cast_text({"cast", from, to, "a", "", ""})) + " break;\n";
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body + "  }\n}\n", "one", std::vector<uint32_t>{0, 1});
  launch.with(static_cast<cl_uint>(count(site.out()))).with(site.out().dtype).over(count(site.out()));
  answer(out, std::move(work), "cast").in_place = width(from) == width(site.out().dtype) ? 1 : 0;
  return true;
}

bool plan_chain(const Site& site, hx_kernel& out) {
  Chain chain(site);
  chain.read_inputs();
  const hx_call_site& raw = site.raw();
  for (uint32_t i = 0; i < raw.n_chain; ++i) {
    const hx_scalar_op& o = raw.chain[i];
    if (!chain.compute(o.op, o.a, o.b, o.c, o.dtype)) return false;
  }
  return chain.finish({raw.chain_outputs, raw.chain_outputs + site.outputs()}, out, "elementwise chain");
}

// y = random < rate ? 0 : x / (1 - rate), as the body has it; the gradient is the same function of dy.
bool plan_dropout(const Site& site, hx_kernel& out) {
  const uint32_t random = site.op() == "dropout_grad" ? 0 : 1, dtype = site.out().dtype;
  if (!is_float(dtype) || site.inputs() != 2 || site.in(1 - random).dtype != dtype) return declined("drops numbers of one type only");
  Chain chain(site);
  chain.read_inputs();
  const double rate = site.number("rate");
  const std::string r = "r" + std::to_string(random), x = "r" + std::to_string(1 - random), type = type_name(dtype);
  const uint32_t kept = chain.add(dtype, x + " * " + rounded(dtype, literal(dtype, 1 / (1 - rate))));
  const uint32_t y = chain.add(dtype, r + " < " + rounded(site.in(random).dtype, literal(site.in(random).dtype, rate)) + " ? (" + type + ")0 : r" + std::to_string(kept));
  return chain.finish({y}, out, "dropout");
}

}  // namespace harmonics::opencl
