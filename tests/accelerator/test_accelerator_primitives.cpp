// Lists the primitives that an accelerator leaves to the reference.
#include "tests/conformance/coverage.hpp"
#include "tests/accelerator/device.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("accelerator: kernels for all primitives on f32") {
  if (!opens_accelerator()) return;
  KernelSource source(accelerator(), Registry::global());
  CHECK(left_to_the_reference(source) == std::set<std::string>{});
}
