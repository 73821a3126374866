// Draws one handwritten-looking digit.
#pragma once

#include <cstdint>

namespace synth {

constexpr int side = 28;  // pixels

// Returns the digit of sample `index` for a seed. All digits are equally frequent.
uint8_t digit_of(uint64_t seed, uint64_t index);
// Draws its picture: side x side bytes, 0 is paper, 255 ink. Depends on (seed, index) only, and is equal on every
// machine.
void draw_digit(uint64_t seed, uint64_t index, uint8_t* picture);

}  // namespace synth
