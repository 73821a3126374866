// Minimum arithmetic and memory traffic of a node, independent of the kernel.
#pragma once

#include "engine/program/program.hpp"

namespace harmonics::engine {

struct Work {
  double products = 0;  // additions and multiplications of contractions; causal attention counts half of them
  double other = 0;     // all other operations, one per element
  double bytes = 0;     // operands read once and results written once
  double flops() const { return products + other; }
};

// Returns the work of a node. A call counts as the body of its functional.
Work work_of(const Program& program, const Node& node);

}  // namespace harmonics::engine
