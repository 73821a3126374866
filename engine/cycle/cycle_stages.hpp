// CycleStages: the stages of a cycle as a oneTBB flow graph, input -> limiter -> step -> output. Each stage works on
// one batch at a time; different stages work on different batches concurrently.
#pragma once

#include <functional>

#include "engine/cycle/cycle_feed.hpp"

namespace harmonics::engine {

struct CycleStages {
  std::function<Slot*()> input;             // null: no batch follows
  std::function<void(Slot&)> step;          // in the order of the input
  std::function<void(const Slot&)> output;  // the same; empty: none

  // Returns when all batches are through. Throws what a stage throws. `threads` is the number of the executor's.
  void run(int threads) const;
};

}  // namespace harmonics::engine
