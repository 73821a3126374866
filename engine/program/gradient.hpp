// Reverse-mode differentiation of the program under trace.
#pragma once

#include <utility>
#include <vector>

#include "engine/program/chooser.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

// Appends the gradients of a scalar value with respect to `wrt` to the tracer's program; zeros where the value does not
// depend on an entry. Visits only nodes on a path from wrt. Uses a primitive's rule, a functional's gradient, or the
// derivative of its body. A host function without gradient on the path throws ErrorKind::Plugin with its name and the
// remedy. New nodes have the forward node's scope in the phase `gradient`. A chooser selects implementations first, so
// that forward and backward use the same one.
std::vector<HTensor> gradient(Tracer& tracer, const HTensor& value, const std::vector<HTensor>& wrt,
                              Chooser* chooser = nullptr);

// Gradients from those of several values: `seeds` are values and their gradients. Otherwise as gradient().
std::vector<HTensor> pullback(Tracer& tracer, const std::vector<std::pair<HTensor, HTensor>>& seeds,
                              const std::vector<HTensor>& wrt, Chooser* chooser = nullptr);

}  // namespace harmonics::engine
