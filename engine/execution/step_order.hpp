// Order of steps for several threads: small steps that do not depend on each other become neighbours, so that they can
// share a wave. Results do not depend on the order.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/execution/memory_plan.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

struct OrderedStep {
  uint32_t step = 0;   // index before
  bool joins = false;  // depends neither on the step before it nor on those that this one joins
};

// Orders steps, whose dependencies precede them. No step crosses `rest`, the first step after the forward pass.
// alone[s]: step s must not run concurrently with others. Steps that read or update the same changing state keep their
// order.
std::vector<OrderedStep> order_steps(const Program& program, const std::vector<PlannedStep>& steps,
                                     const std::vector<bool>& alone, uint32_t rest);

}  // namespace harmonics::engine
