// Minimum arithmetic and memory traffic of a node, independent of the kernel.
#pragma once

#include "engine/program/program.hpp"

namespace harmonics::engine {

struct Work {
  double products = 0;  // additions and multiplications of contractions; causal attention counts half
  double other = 0;     // all else: one per element and operation
  double bytes = 0;     // operands read once, results written once
  double flops() const { return products + other; }
};

// A call counts as its functional's body.
Work work_of(const Program& program, const Node& node);

}  // namespace harmonics::engine
