// Description of a convolution for cuDNN.
#pragma once

#include "work.hpp"

namespace harmonics::cuda {

// y [N, O, ...] = x [N, C, ...] with weight [O, C / groups, ...], all dense and of one float type, or one of its
// gradients. Two or three spatial axes.
struct Convolution {
  enum class Pass : uint8_t { forward, input, weight } pass = Pass::forward;
  std::vector<int64_t> x, weight, y;                  // shapes
  std::vector<int64_t> strides, dilation, low, high;  // of the spatial axes
  uint32_t dtype = HX_F32;
  bool may_round = false;                                 // operands may be rounded to ten bits of mantissa
  Operand x_operand{0}, weight_operand{0}, y_operand{0};  // of gradients in place of their tensors
};

// A cuDNN step; adds its workspace to `work`. Null with the reason in `why` if unsupported.
std::unique_ptr<Step> dnn_step(const Site& site, Work& work, const Convolution& convolution, std::string& why);

}  // namespace harmonics::cuda
