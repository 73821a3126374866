// What a node has to do at least, whoever does it.
#pragma once

#include "engine/program/program.hpp"

namespace harmonics {

struct Work {
  double products = 0;  // additions and multiplications of contractions; a causal attention's without the masked half
  double other = 0;     // everything else: one an element and operation
  double bytes = 0;     // operands read once, results written once
  double flops() const { return products + other; }
};

// A call counts as its functional's body.
Work work_of(const Program& program, const Node& node);

}  // namespace harmonics
