// Description of an attention for cuDNN.
#pragma once

#include "work.hpp"

namespace harmonics::cuda {

// q [B, H, T, D], k [B, Hkv, S, D], v [B, Hkv, S, Dv] -> out [B, H, T, Dv], lse [B, H, T]. All are dense with two-byte
// elements, except lse, which is f32. positions_first swaps the second and third axis, except in lse. is_causal: the
// last query sees all keys.
struct Attention {
  uint32_t dtype = HX_F16;
  int64_t batch, heads, shared, queries, keys, width, value_width;
  bool positions_first = false, is_causal = false;
  float scale = 1;
  Operand q{0}, k{1}, v{2}, out{3}, lse{4};
};

// Returns a cuDNN step and adds its workspace to `work`. Returns null with the reason in `why` if unsupported.
std::unique_ptr<Step> dnn_step(const Site& site, Work& work, const Attention& attention, std::string& why);

}  // namespace harmonics::cuda
