// Convolutions by cuDNN: how one is told to it.
#pragma once

#include "work.hpp"

namespace harmonics::cuda {

// y [N, O, ...] = x [N, C, ...] with weight [O, C / groups, ...], all dense and of one type of floats, or one of its slopes. Two or three
// spatial axes.
struct Convolution {
  enum class Pass : uint8_t { forward, input, weight } pass = Pass::forward;
  std::vector<int64_t> x, weight, y;                  // shapes
  std::vector<int64_t> strides, dilation, low, high;  // of the spatial axes
  uint32_t dtype = HX_F32;
  bool may_round = false;                             // operands to ten bits of mantissa
  Operand x_place{0}, weight_place{0}, y_place{0};    // of the slopes in the place of what they are of
};

// A step that cuDNN does, its workspace added to `work`; null, with the reason, when it cannot.
std::unique_ptr<Step> dnn_step(const Site& site, Work& work, const Convolution& convolution, std::string& why);

}  // namespace harmonics::cuda
