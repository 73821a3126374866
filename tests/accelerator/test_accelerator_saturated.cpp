// Compares large and saturated numbers on an accelerator with PyTorch.
#include "tests/engine/execution/compiled.hpp"
#include "tests/accelerator/device.hpp"
#include "tests/parity/case_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("accelerator: functionals and gradients of saturated numbers equal PyTorch's") {
  if (!opens_accelerator()) return;
  constexpr parity::Tolerance kNear{3e-4, 2e-5};  // exponentials have the error bounds of OpenCL
  const auto executor = make_sequential_executor();
  for (const char* name : {"functionals.safetensors", "layers.safetensors"}) {
    const TensorFile file = parity::golden(name);
    for (const parity::GoldenCase& c : parity::saturated_cases(file)) {
      const auto stored = parity::below(file, c.name);
      const Program program = parity::case_program(c, stored, DType::F32);
      const Values found = run_compiled(program, parity::case_inputs(stored, DType::F32), *executor, on(accelerator()));
      for (size_t i = 0; i < found.size(); ++i) {
        INFO(c.name << "/" << program.outputs[i].name);
        CHECK(parity::difference(found[i], stored.at(program.outputs[i].name), kNear) == "");
      }
    }
  }
}
