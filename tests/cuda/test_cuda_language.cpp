// Language models on the CUDA device: several sequences in one step, over pages in the device's memory.
#include "tests/cuda/emulated_device.hpp"
#include "tests/engine/language/greedy_texts.hpp"

using namespace harmonics;
using namespace harmonics::cuda::testing;

TEST_CASE("cuda: texts in one batch are those of the CPU, and those of one text at a time") {
  const FreshSettings fresh;
  EmulatedDevice device;
  harmonics::engine::testing::check_texts(*device.executor, device.options());
}
