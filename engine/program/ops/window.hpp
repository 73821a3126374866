// reduce_window, a row of the family `reduce`.
#pragma once

#include "engine/program/op.hpp"

namespace harmonics::engine {

OpRow window_row(Op op);

// Returns the gradient of x for y, the maxima or minima of windows of x: distributes dy of each window equally over the
// elements that equal its extreme. Attributes are those of reduce_window.
HTensor share_among_extremes(const AttributeMap& attributes, const HTensor& x, const HTensor& y, const HTensor& dy);

}  // namespace harmonics::engine
