// Recurrent layers on the emulated CUDA device, which has no kernels for them, against the CPU.
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
  for (const char* kind : {"rnn", "lstm", "gru"}) {
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
