#pragma once

#include <memory>

#include <harmonics/abi.h>

#include "../matmul.hpp"

namespace harmonics::cpu {

// Plans a oneDNN matmul on the slices of `context`'s grid. Copies the offsets.
void answer_onednn_matmul(const MatmulContext& context, hx_kernel& out);

}  // namespace harmonics::cpu
