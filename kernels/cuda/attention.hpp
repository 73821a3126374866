// Attention by cuDNN: how one is told to it.
#pragma once

#include "work.hpp"

namespace harmonics::cuda {

// out [B, H, T, Dv] and lse [B, H, T] of q [B, H, T, D], k [B, Hkv, S, D] and v [B, Hkv, S, Dv], all dense in two bytes an element but lse,
// which is f32; with the second and third axis changed places where positions come first, lse aside. Causal: the last query sees all keys.
struct Attention {
  uint32_t dtype = HX_F16;
  int64_t batch, heads, shared, queries, keys, width, value_width;
  bool positions_first = false, is_causal = false;
  float scale = 1;
  Operand q{0}, k{1}, v{2}, out{3}, lse{4};
};

// A step that cuDNN does, its workspace added to `work`; null, with the reason, when it cannot.
std::unique_ptr<Step> dnn_step(const Site& site, Work& work, const Attention& attention, std::string& why);

}  // namespace harmonics::cuda
