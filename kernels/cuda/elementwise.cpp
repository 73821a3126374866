// Plans elementwise operations and chains, whose programs are generated and compiled at plan time.
#include "chain_source.hpp"
#include "families.hpp"

namespace harmonics::cuda {
namespace {

constexpr uint32_t kMostOperands = 60;

// Launches a generated program with its parameters.
class ChainStep final : public Step {
 public:
  ChainStep(Function function, const Grid& grid, uint32_t buffers, std::vector<uint32_t> parameters)
      : function_(function), grid_(grid), buffers_(buffers), parameters_(std::move(parameters)) {}
  void enqueue(Machine& machine, void* stream, const hx_place* places) const override {
    void* addresses[kMostOperands];
    void* arguments[kMostOperands + 1];
    for (uint32_t i = 0; i < buffers_; ++i) {
      addresses[i] = address(places[i]);
      arguments[i] = &addresses[i];
    }
    arguments[buffers_] = const_cast<uint32_t*>(parameters_.data());
    machine.check(machine.driver().launch(function_, grid_, arguments, stream), "start a kernel");
  }

 private:
  Function function_;
  Grid grid_;
  uint32_t buffers_;
  std::vector<uint32_t> parameters_;
};

}  // namespace

bool plan_chain(const Site& site, hx_kernel& out) {
  const uint32_t buffers = site.inputs() + site.outputs();
  if (buffers > kMostOperands) return declined("so many operands");
  ChainSource source;
  if (!chain_source(site.raw(), source)) return false;
  if (const std::string why = site.machine().no_compiler(); !why.empty()) return declined(why);
  const Function function = site.machine().function(source.text, "chain");
  constexpr uint32_t kOfBlock = kThreads * kElementsOfThread;
  Work work(site.machine());
  work.add(std::make_unique<ChainStep>(function, Grid{(source.parameters[0] + kOfBlock - 1) / kOfBlock, 1, 1, kThreads},
                                       buffers, source.parameters));
  hx_kernel& kernel =
      answer(out, std::move(work), site.op() == "fused_elementwise" ? "elementwise chain" : "elementwise");
  for (uint32_t i = 0; i < site.inputs() && i < 32; ++i)
    if (source.same[i] && width(site.in(i).dtype) == width(site.out().dtype)) kernel.in_place |= 1u << i;
  return true;
}

bool plan_elementwise(const Site& site, hx_kernel& out) { return plan_chain(site, out); }

HM_PLANS(elementwise, {"fused_elementwise", plan_chain}, {"cast", plan_elementwise},
         {"stop_gradient", plan_elementwise}, {"select", plan_elementwise})

}  // namespace harmonics::cuda
