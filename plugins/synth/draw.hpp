// Draws one handwritten-looking digit.
#pragma once

#include <cstdint>

namespace synth {

constexpr int side = 28;  // pixels

// The digit shown by sample `index` under a seed: every one equally often.
uint8_t digit_of(uint64_t seed, uint64_t index);
// Its picture: side x side bytes, 0 is paper, 255 ink. A function of (seed, index) alone, the same on every machine.
void draw_digit(uint64_t seed, uint64_t index, uint8_t* picture);

}  // namespace synth
