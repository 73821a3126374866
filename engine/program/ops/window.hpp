// reduce_window, a row of the family `reduce`.
#pragma once

#include "engine/program/op.hpp"

namespace harmonics::engine {

OpRow window_row(Op op);

}  // namespace harmonics::engine
