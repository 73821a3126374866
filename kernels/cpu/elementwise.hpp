// A chain of scalar operations over registers, a block of elements at a time.
#pragma once

#include <harmonics/abi.h>

#include "block.hpp"

namespace harmonics::cpu {

constexpr uint32_t kMaxRegisters = 256;
constexpr int64_t kScratchBytes = 32 * 1024;

enum class Place : uint8_t {
  input,      // elements of a buffer, in order
  repeated,   // a buffer shorter than the chain whose length divides the block, filled into scratch once
  stretched,  // a broadcast buffer, filled into scratch for every block
  constant,   // one number, filled into scratch once
  scratch,
  output
};

struct ChainRegister {
  Place place;
  uint8_t width;    // bytes of an element
  uint32_t buffer;  // which one, for input, repeated, stretched and output
  int64_t offset;   // bytes in the scratch memory
  int64_t period;   // repeated: elements
  uint32_t rank;    // stretched: the chain's shape, neighbouring axes joined, and the strides of the buffer in it
  int64_t dims[HX_MAX_RANK], strides[HX_MAX_RANK];
  uint64_t bits;  // constant: the element
};

struct ChainStep {
  Block block;
  uint32_t result, a, b, c;
};

struct ChainContext {
  int64_t count, block;
  uint32_t parts, n_registers, n_steps;
  const ChainRegister* registers;
  const ChainStep* steps;
};

}  // namespace harmonics::cpu
