// gather_nd and scatter_nd, rows of the family `index`.
#pragma once

#include "engine/program/op.hpp"

namespace harmonics::engine {

OpRow index_nd_row(Op op);

}  // namespace harmonics::engine
