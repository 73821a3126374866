// Description of a convolution for cuDNN.
#pragma once

#include "work.hpp"

namespace harmonics::cuda {

// x [N, C, ...], weight [O, C / groups, ...] -> y [N, O, ...], or one of the gradients. All tensors are dense and of
// one float type; two or three spatial axes.
struct Convolution {
  enum class Pass : uint8_t { forward, input, weight } pass = Pass::forward;
  std::vector<int64_t> x, weight, y;                  // shapes
  std::vector<int64_t> strides, dilation, low, high;  // of the spatial axes
  uint32_t dtype = HX_F32;
  bool may_round = false;                                 // operands may be rounded to ten bits of mantissa (TF32)
  Operand x_operand{0}, weight_operand{0}, y_operand{0};  // in gradient passes: of the gradients
};

// Returns a cuDNN step and adds its workspace to `work`. Returns null with the reason in `why` if unsupported.
std::unique_ptr<Step> dnn_step(const Site& site, Work& work, const Convolution& convolution, std::string& why);

}  // namespace harmonics::cuda
