// Compares large and saturated numbers on the emulated driver with PyTorch.
#include "tests/cuda/emulated_device.hpp"
#include "tests/engine/execution/compiled.hpp"
#include "tests/parity/case_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::cuda::testing;

TEST_CASE("cuda: functionals and gradients of saturated numbers equal PyTorch's") {
  const FreshSettings fresh;
  constexpr parity::Tolerance kNear{3e-4, 2e-5};
  EmulatedDevice with;
  for (const char* name : {"functionals.safetensors", "layers.safetensors"}) {
    const TensorFile file = parity::golden(name);
    for (const parity::GoldenCase& c : parity::saturated_cases(file)) {
      const auto stored = parity::below(file, c.name);
      const Program program = parity::case_program(c, stored, DType::F32);
      const Values found = harmonics::engine::testing::run_compiled(program, parity::case_inputs(stored, DType::F32),
                                                                    *with.executor, with.options());
      for (size_t i = 0; i < found.size(); ++i) {
        INFO(c.name << "/" << program.outputs[i].name);
        CHECK(parity::difference(found[i], stored.at(program.outputs[i].name), kNear) == "");
      }
    }
  }
}
