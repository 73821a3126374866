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

// Parses "add(0,1) gelu(2)" into steps of a chain.
class Steps {
 public:
  Steps(ChainBuilder& builder, std::vector<uint32_t> registers) : builder_(builder), registers_(std::move(registers)) {}

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
  size_t last_read() const { return last_read_; }  // register of the last step that reads the product

 private:
  bool take_one(std::string_view step) {
    const size_t open = step.find('(');
    if (open == std::string_view::npos || step.back() != ')') return false;
    const ScalarRow* row = scalar_row(step.substr(0, open));
    std::array<uint32_t, 3> operands{};
    uint32_t count = 0;
    for (size_t i = open + 1; i < step.size(); ++i, ++count) {
      size_t number = 0;
      for (; step[i] >= '0' && step[i] <= '9' && number < registers_.size(); ++i)
        number = number * 10 + static_cast<size_t>(step[i] - '0');
      if (count == operands.size() || number >= registers_.size() || (step[i] != ',' && step[i] != ')')) return false;
      operands[count] = registers_[number];
      if (number == 0) last_read_ = registers_.size();
    }
    if (!row || row->operands != count) return false;
    const auto result = builder_.step(*row, HX_F32, operands);
    if (result) registers_.push_back(*result);
    return result.has_value();
  }

  ChainBuilder& builder_;
  std::vector<uint32_t> registers_;
  size_t last_read_ = 0;
};

// Marks the stored registers as outputs. The first result overwrites the product, so it must be computed after the
// product's last read.
bool store_results(ChainBuilder& builder, const Steps& steps, const std::vector<int64_t>& stored, size_t inputs) {
  for (size_t i = 0; i < stored.size(); ++i) {
    const auto r = static_cast<size_t>(stored[i]);
    if (i == 0 && r == 0) continue;
    if (r <= inputs || r >= steps.count() || (i == 0 && r < steps.last_read())) return false;
    if (!builder.output(static_cast<uint32_t>(i == 0 ? 0 : i + 2), steps.at(r))) return false;
  }
  return true;
}

// a, b, further... -> results...
bool plan_fused_dot(const Site& site, hx_kernel& out) {
  if (!site.all_f32() || site.inputs() > 2 + kMostFurther) return declined("finishes products of f32");
  auto p = product_of_dot(site);
  const std::vector<int64_t> stored = site.integers("stored");
  if (!p || stored.size() != site.outputs()) return false;
  auto c = std::make_unique<FinishedProduct>();
  c->inputs = p->c = site.inputs();
  c->results = site.outputs();
  ChainBuilder builder(dims(site.out()), p->c);
  std::vector<uint32_t> registers{builder.input(p->c, site.out())};
  for (uint32_t i = 2; i < site.inputs(); ++i) registers.push_back(builder.input(i, site.in(i)));
  const size_t further = registers.size() - 1;
  Steps steps(builder, std::move(registers));
  if (!steps.take(site.text("steps")) || !store_results(builder, steps, stored, further)) return false;
  builder.keep(steps.at(steps.count() - 1));
  if (!builder.fill(*c, *c)) return false;
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
