// The stages of a cycle when one of them fails.
#include <oneapi/tbb/task_group.h>

#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine/cycle/cycle_stages.hpp"

using namespace harmonics::engine;

TEST_CASE("cycle stages: batches read before a failed read complete their steps") {
  for (const bool delivers : {false, true}) {
    std::array<Slot, 4> slots;
    std::promise<void> failing;
    const std::shared_future<void> failed = failing.get_future().share();
    size_t read = 0;
    std::vector<size_t> steps, outputs;
    bool in_time = true;
    CycleStages stages;
    stages.input = [&]() -> Slot* {
      if (read == 2) {
        failing.set_value();
        throw std::runtime_error("the disk is gone");
      }
      slots[read].sequence = read;
      return &slots[read++];
    };
    stages.step = [&](Slot& slot) {  // the first step ends after the failed read
      in_time = in_time && failed.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
      // An exception that leaves the input cancels the graph a moment later.
      for (int i = 0; i < 100'000 && !oneapi::tbb::is_current_task_group_canceling(); ++i) std::this_thread::yield();
      steps.push_back(slot.sequence);
    };
    if (delivers) stages.output = [&](const Slot& slot) { outputs.push_back(slot.sequence); };
    CHECK_THROWS_WITH(stages.run(2), "the disk is gone");
    CHECK(in_time);
    CHECK(steps == std::vector<size_t>{0, 1});
    CHECK(outputs == (delivers ? std::vector<size_t>{0, 1} : std::vector<size_t>{}));
  }
}

TEST_CASE("cycle stages: no batch is read after a failed step") {
  Slot slot;
  size_t read = 0;
  CycleStages stages;
  stages.input = [&]() -> Slot* { return read++ < 1000 ? &slot : nullptr; };
  stages.step = [&](Slot&) { throw std::runtime_error("not finite"); };
  CHECK_THROWS_WITH(stages.run(2), "not finite");
  CHECK(read <= CycleFeed::kInFlight + 1);
}
