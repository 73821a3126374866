// fused_dot: a product with an epilogue of elementwise operations on each block of C while it is in cache.
#include "chain_builder.hpp"
#include "families.hpp"

namespace harmonics::cpu {
namespace {

constexpr uint32_t kMostFurther = 8;

// Buffers of the product: a, b, further inputs, first result, workspace, unused, further results.
struct FinishedProduct : OwnedChain {
  InnerKernel product;
  uint32_t inputs = 0, results = 0;
};

void run_finished(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const FinishedProduct*>(context);
  void* own[kMostBuffers] = {};
  for (uint32_t i = 0; i <= c.inputs; ++i) own[i] = buffers[i];
  own[c.inputs + 1] = buffers[c.inputs + c.results];
  for (uint32_t i = 1; i < c.results; ++i) own[c.inputs + 2 + i] = buffers[c.inputs + i];
  c.product.run(c.product.context, own, phase, part);
}

// Whether the first step adds in(2), a row, to the product, and no other step reads either. Then the product adds it.
bool adds_bias_first(const Site& site) {
  constexpr std::string_view kBias = "add(0,1) ";
  const std::string text = site.text("steps");
  if (site.inputs() < 3 || !text.starts_with(kBias) || site.integers("stored").at(0) == 0) return false;
  for (const char* other : {"(0,", "(1,", "(0)", "(1)", ",0,", ",1,", ",0)", ",1)"})
    if (text.find(other, kBias.size()) != std::string::npos) return false;
  const hx_type &row = site.in(2), &out = site.out();
  return row.rank == 1 && out.rank > 0 && row.dims[0] == out.dims[out.rank - 1];
}

// Parses "add(0,1) gelu(2)" into steps of a chain. `finished`: the register of the product, with its bias if it adds
// one.
class Steps {
 public:
  Steps(ChainBuilder& builder, std::vector<uint32_t> registers, size_t finished, const std::vector<int64_t>& stored)
      : builder_(builder), registers_(std::move(registers)), finished_(finished), stored_(stored) {}

  bool take(std::string_view text) {
    while (!text.empty()) {
      const size_t space = std::min(text.find(' '), text.size());
      if (!take_one(text.substr(0, space))) return false;
      text.remove_prefix(std::min(space + 1, text.size()));
    }
    return true;
  }
  size_t count() const { return registers_.size(); }
  uint32_t at(size_t i) const { return registers_[i]; }
  size_t last_read() const { return last_read_; }  // register of the last step that reads the finished product

 private:
  bool take_one(std::string_view step) {
    const size_t open = step.find('(');
    if (open == std::string_view::npos || step.back() != ')') return false;
    const ScalarRow* row = scalar_row(step.substr(0, open));
    std::array<uint32_t, 3> operands{};
    uint32_t count = 0;
    bool reads_product = false;
    for (size_t i = open + 1; i < step.size(); ++i, ++count) {
      size_t number = 0;
      for (; step[i] >= '0' && step[i] <= '9' && number < registers_.size(); ++i)
        number = number * 10 + static_cast<size_t>(step[i] - '0');
      if (count == operands.size() || number >= registers_.size() || (step[i] != ',' && step[i] != ')')) return false;
      operands[count] = registers_[number];
      reads_product = reads_product || number == finished_;
    }
    if (!row || row->operands != count) return false;
    if (row->op == ScalarOp::gelu_grad_ && join_gelu(operands)) return true;
    const auto result = builder_.step(*row, HX_F32, operands);
    if (!result) return false;
    if (reads_product) last_read_ = registers_.size();
    registers_.push_back(*result);
    return true;
  }
  bool is_stored(size_t number) const {
    return std::find(stored_.begin(), stored_.end(), static_cast<int64_t>(number)) != stored_.end();
  }
  // Computes the gradient in the step of its gelu, if both are stored.
  bool join_gelu(const std::array<uint32_t, 3>& operands) {
    for (size_t i = 0; i < registers_.size() && is_stored(registers_.size()); ++i) {
      if (!is_stored(i)) continue;
      const auto result = builder_.gelu_gradient(registers_[i], operands[0], operands[1]);
      if (result) return registers_.push_back(*result), true;
    }
    return false;
  }

  ChainBuilder& builder_;
  std::vector<uint32_t> registers_;
  size_t finished_, last_read_ = 0;
  const std::vector<int64_t>& stored_;
};

// Marks the stored registers as outputs. The first result overwrites the product, so it must be computed after the
// product's last read.
bool store_results(ChainBuilder& builder, const Steps& steps, const std::vector<int64_t>& stored, size_t inputs,
                   size_t finished) {
  for (size_t i = 0; i < stored.size(); ++i) {
    const auto r = static_cast<size_t>(stored[i]);
    if (i == 0 && r == finished) continue;
    if (r <= inputs || r >= steps.count() || (i == 0 && r < steps.last_read())) return false;
    if (!builder.output(static_cast<uint32_t>(i == 0 ? 0 : i + 2), steps.at(r))) return false;
  }
  return true;
}

// Builds the chain of a finished product, which may add the bias itself. Returns false if the steps are not supported.
bool build_chain(const Site& site, bool adds_bias, Product& p, FinishedProduct& c) {
  const std::vector<int64_t> stored = site.integers("stored");
  ChainBuilder builder(dims(site.out()), p.c);
  std::vector<uint32_t> registers{builder.input(p.c, site.out())};
  for (uint32_t i = 2; i < site.inputs(); ++i)
    registers.push_back(i == 2 && adds_bias ? registers[0] : builder.input(i, site.in(i)));
  const size_t further = registers.size() - 1, finished = adds_bias ? further + 1 : 0;
  if (adds_bias) registers.push_back(registers[0]);
  p.has_bias = adds_bias;
  p.bias = 2;
  Steps steps(builder, std::move(registers), finished, stored);
  const std::string text = site.text("steps");
  if (!steps.take(std::string_view(text).substr(adds_bias ? text.find(' ') + 1 : 0)) ||
      !store_results(builder, steps, stored, further, finished))
    return false;
  builder.keep(steps.at(steps.count() - 1));
  return builder.fill(c, c);
}

// a, b, further... -> results...
bool plan_fused_dot(const Site& site, hx_kernel& out) {
  if (!site.all_f32() || site.inputs() > 2 + kMostFurther) return declined("finishes products of f32");
  auto p = product_of_dot(site);
  if (!p || site.outputs() == 0 || site.integers("stored").size() != site.outputs()) return false;
  auto c = std::make_unique<FinishedProduct>();
  c->inputs = p->c = site.inputs();
  c->results = site.outputs();
  if (!(adds_bias_first(site) && build_chain(site, true, *p, *c)) && !build_chain(site, false, *p, *c)) return false;
  p->chain = c.get();
  p->extra = site.outputs() - 1;
  if (p->c + 3 + p->extra > kMostBuffers || !answer_finished_product(*p, c->product))
    return declined("finishes products of many rows");
  answer_as(&FinishedProduct::product, out, std::move(c), run_finished);
  return true;
}

}  // namespace

HM_PLANS(finished_product, {"fused_dot", plan_fused_dot})

}  // namespace harmonics::cpu
