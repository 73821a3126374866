// Reverse-mode differentiation of the program under trace.
#pragma once

#include <utility>
#include <vector>

#include "engine/program/chooser.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

// Appends the gradients of a scalar value with respect to `wrt` to the tracer's program; zeros for entries that the
// value does not depend on. Visits only nodes on a path from wrt. Uses a primitive's rule, a functional's gradient, or
// the derivative of its body. Throws ErrorKind::Plugin, with name and remedy, for a host function without gradient on
// the path. New nodes have the forward node's scope in the phase `gradient`. A chooser selects implementations first,
// so that forward and backward pass use the same one.
std::vector<HTensor> gradient(Tracer& tracer, const HTensor& value, const std::vector<HTensor>& wrt,
                              Chooser* chooser = nullptr);

// Same for several values: `seeds` are values and their gradients.
std::vector<HTensor> pullback(Tracer& tracer, const std::vector<std::pair<HTensor, HTensor>>& seeds,
                              const std::vector<HTensor>& wrt, Chooser* chooser = nullptr);

}  // namespace harmonics::engine
