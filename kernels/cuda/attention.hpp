// Description of an attention for cuDNN.
#pragma once

#include "work.hpp"

namespace harmonics::cuda {

// out [B, H, T, Dv] and lse [B, H, T] of q [B, H, T, D], k [B, Hkv, S, D] and v [B, Hkv, S, Dv], all dense with
// two-byte elements except lse, which is f32. If positions come first, the second and third axis are swapped, except in
// lse. Causal: the last query sees all keys.
struct Attention {
  uint32_t dtype = HX_F16;
  int64_t batch, heads, shared, queries, keys, width, value_width;
  bool positions_first = false, is_causal = false;
  float scale = 1;
  Operand q{0}, k{1}, v{2}, out{3}, lse{4};
};

// A cuDNN step; adds its workspace to `work`. Null with the reason in `why` if unsupported.
std::unique_ptr<Step> dnn_step(const Site& site, Work& work, const Attention& attention, std::string& why);

}  // namespace harmonics::cuda
