// CycleStages: runs the stages of a cycle as a oneTBB flow graph, input -> limiter -> step -> output. Each stage works
// on one batch at a time; different stages work on different batches concurrently.
#pragma once

#include <functional>

#include "engine/cycle/cycle_feed.hpp"

namespace harmonics::engine {

struct CycleStages {
  std::function<Slot*()> input;             // returns null at the end
  std::function<void(Slot&)> step;          // called in the order of the input
  std::function<void(const Slot&)> output;  // called in the same order; empty for none

  // Returns when all batches have passed. Throws errors of the stages; an error of the input is thrown when the batches
  // before it have passed. `threads` is the number of threads of the executor.
  void run(int threads) const;
};

}  // namespace harmonics::engine
