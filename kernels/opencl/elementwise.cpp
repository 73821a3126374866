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
  if (!type_name(o.operands) || !type_name(o.result)) return "";
  if (o.op == "cast") return cast_text(o);
  const kernels::Sort sort = o.operands == HX_BOOL ? kernels::Sort::flag : is_float(o.operands) ? kernels::Sort::real : kernels::Sort::whole;
  return kernels::scalar_text(o.op, sort, {o.a, o.b, o.c, type_name(o.operands), unsigned_name(o.operands)});
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
  explicit Chain(const Site& site) : site_(site), n_(count(site.out())) {}

  bool read_inputs() {
    for (uint32_t i = 0; i < site_.inputs(); ++i) {
      if (!type_name(site_.in(i).dtype)) return declined("computes f32, f64 and whole numbers, not f16 and bf16");
      types_.push_back(site_.in(i).dtype);
      lies_.push_back(lie_of(site_.in(i), site_.out()));
      const std::string k = std::to_string(i), type = type_name(types_.back());
      if (lies_[i].how == Lie::stretched) {
        const std::string place = "x" + k, prefix = "w" + k + "_";
        parameters_ += lies_[i].walk.parameters(prefix);
        body_ += lies_[i].walk.text("i", prefix, {place}) + "  const " + type + " r" + k + " = AT(" + type + ", " + k + ")[" + place + "];\n";
      } else {
        body_ += "  const " + type + " r" + k + " = AT(" + type + ", " + k + ")[" + (lies_[i].how == Lie::one ? "0" : "i") + "];\n";
      }
    }
    return true;
  }

  bool compute(std::string_view op, uint32_t a, uint32_t b, uint32_t c, uint32_t result) {
    const auto name = [&](uint32_t r) { return r < types_.size() ? "r" + std::to_string(r) : std::string("0"); };
    const uint32_t operands = types_.at(a);
    const std::string text = text_of({op, operands, result, name(a), name(b), name(c)});
    if (text.empty()) return declined(std::string("has no ") + std::string(op) + " of these types");
    body_ += "  const " + std::string(type_name(result)) + " r" + std::to_string(types_.size()) + " = " + text + ";\n";
    types_.push_back(result);
    return true;
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
      body_ += "  AT(" + std::string(type_name(types_.at(stored[k]))) + ", " + std::to_string(site_.inputs() + k) + ")[i] = r" + std::to_string(stored[k]) + ";\n";
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
  const Site& site_;
  int64_t n_;
  std::vector<uint32_t> types_;  // by register
  std::vector<Lie> lies_;
  std::string parameters_, body_;
};

}  // namespace

bool plan_elementwise(const Site& site, hx_kernel& out) {
  Chain chain(site);
  if (!chain.read_inputs()) return false;
  if (!chain.compute(site.op(), 0, 1, 2, site.op() == "select" ? site.in(1).dtype : site.out().dtype)) return false;
  return chain.finish({site.inputs()}, out, "elementwise");
}

bool plan_chain(const Site& site, hx_kernel& out) {
  Chain chain(site);
  if (!chain.read_inputs()) return false;
  const hx_call_site& raw = site.raw();
  for (uint32_t i = 0; i < raw.n_chain; ++i) {
    const hx_scalar_op& o = raw.chain[i];
    if (!chain.compute(o.op, o.a, o.b, o.c, o.dtype)) return false;
  }
  return chain.finish({raw.chain_outputs, raw.chain_outputs + site.outputs()}, out, "elementwise chain");
}

}  // namespace harmonics::opencl
