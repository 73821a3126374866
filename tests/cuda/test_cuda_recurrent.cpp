// Compares recurrent layers on the emulated CUDA device, which has no kernels for them, with the CPU.
#include <cmath>

#include "tests/cuda/emulated_device.hpp"
#include "tests/engine/execution/recurrent_training.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using harmonics::cuda::testing::EmulatedDevice;
using harmonics::cuda::testing::FreshSettings;

TEST_CASE("cuda: recurrent layers and their gradients equal the CPU's in plans that do not grow with length") {
  const FreshSettings fresh;
  EmulatedDevice device;
  for (const char* kind : {"rnn", "plugin", "lstm", "gru"}) {
    INFO(kind);
    for (const int64_t length : {1, 8, 200}) {
      const RecurrentTraining r = recurrent_training(kind, length);
      CHECK(most_apart(run_compiled(r.program, r.numbers, *device.executor, device.options()),
                       run_compiled(r.program, r.numbers, *device.executor, on("cpu"))) < 1e-4);
    }
    CHECK(planned_steps_of(recurrent_training(kind, 8), device.options()) ==
          planned_steps_of(recurrent_training(kind, 200), device.options()));
  }
}

TEST_CASE("cuda: a loop as a plugin writes it equals its unrolled form, with gradients") {
  const FreshSettings fresh;
  EmulatedDevice device;
  const RecurrentTraining loop = recurrent_training("plugin", 6), unrolled = recurrent_training("unrolled", 6);
  CHECK(loop.program.nodes.size() < unrolled.program.nodes.size());
  const Values expected = run_compiled(unrolled.program, unrolled.numbers, *device.executor, on("cpu"));
  for (const CompileOptions& where : {on("cpu"), device.options()})
    CHECK(most_apart(run_compiled(loop.program, loop.numbers, *device.executor, where), expected) < 1e-4);
}
