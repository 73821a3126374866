// Windows of planes written out (patches) and summed back (unpatches).
#pragma once

#include <cstdint>

namespace harmonics::cpu {

// Planes of three axes; missing leading ones have size 1.
struct PatchContext {
  int64_t planes;  // N C
  int64_t size[3], place[3], kernel[3], stride[3], low[3], dilation[3];
  float fill;
  uint32_t parts;  // patches: of planes and taps; unpatches: of planes
};

}  // namespace harmonics::cpu
