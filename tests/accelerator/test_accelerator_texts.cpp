// Language models on an accelerator: several sequences in one step, over pages in the device's memory.
#include "tests/accelerator/device.hpp"
#include "tests/engine/execution/compiled.hpp"
#include "tests/engine/language/greedy_texts.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("accelerator: texts in one batch are those of the CPU, and those of one text at a time") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  check_texts(*executor, on(accelerator()));
}
