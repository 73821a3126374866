// reduce_window, a row of the family `reduce`.
#pragma once

#include "engine/program/op.hpp"

namespace harmonics::engine {

OpRow window_row(Op op);

// dx of a maximum or minimum y of windows of x: dy of every window in equal shares to the elements that equal its
// extreme. Attributes are those of reduce_window.
HTensor share_among_extremes(const AttributeMap& attributes, const HTensor& x, const HTensor& y, const HTensor& dy);

}  // namespace harmonics::engine
