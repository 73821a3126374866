// Recurrent layers on an accelerator against the CPU.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/engine/execution/recurrent_training.hpp"
#include "tests/accelerator/device.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("accelerator: recurrent layers and their gradients equal the CPU's in plans that do not grow with length") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  for (const char* kind : {"rnn", "plugin", "lstm", "gru"}) {
    INFO(kind);
    for (const int64_t length : {1, 8, 200}) {
      const RecurrentTraining r = recurrent_training(kind, length);
      CHECK(most_apart(run_compiled(r.program, r.numbers, *executor, on(accelerator())),
                       run_compiled(r.program, r.numbers, *executor, on("cpu"))) < 1e-4);
    }
    CHECK(planned_steps_of(recurrent_training(kind, 8), on(accelerator())) ==
          planned_steps_of(recurrent_training(kind, 200), on(accelerator())));
  }
}

TEST_CASE("accelerator: a loop as a plugin writes it equals its unrolled form, with gradients") {
  if (!opens_accelerator()) return;
  const auto executor = make_sequential_executor();
  const RecurrentTraining loop = recurrent_training("plugin", 6), unrolled = recurrent_training("unrolled", 6);
  CHECK(loop.program.nodes.size() < unrolled.program.nodes.size());
  const Values expected = run_compiled(unrolled.program, unrolled.numbers, *executor, on("cpu"));
  for (const CompileOptions& where : {on("cpu"), on(accelerator())})
    CHECK(most_apart(run_compiled(loop.program, loop.numbers, *executor, where), expected) < 1e-4);
}
