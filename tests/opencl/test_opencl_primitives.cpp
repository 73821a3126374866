// Which primitives the OpenCL device leaves to the reference.
#include "tests/conformance/coverage.hpp"
#include "tests/opencl/driver.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("opencl: kernels for all primitives on f32") {
  if (!opens_driver()) return;
  KernelSource source("opencl", Registry::global());
  CHECK(left_to_the_reference(source) == std::set<std::string>{});
}
