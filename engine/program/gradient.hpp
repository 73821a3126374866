// Reverse-mode differentiation of the program under trace.
#pragma once

#include <vector>

#include "engine/program/chooser.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics {

// Appends to the tracer's program the gradients of a scalar value with respect to `wrt`; entries the value does not depend on
// get zeros. Walks only nodes on a path from wrt; uses a primitive's rule, a functional's own gradient, or (for a
// functional without one) the derivative of its body. A host function without gradient on the path is an error of kind
// Plugin that names it and the remedy. The nodes carry the scope "gradient/" + the forward node's scope. With a chooser the calls
// are settled first, so that forward and backward are computed by one and the same.
std::vector<HTensor> gradient(Tracer& tracer, const HTensor& value, const std::vector<HTensor>& wrt, Chooser* chooser = nullptr);

}  // namespace harmonics
