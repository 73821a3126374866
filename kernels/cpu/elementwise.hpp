// Evaluates a chain of scalar operations block by block.
#pragma once

#include <harmonics/abi.h>

#include "block.hpp"

namespace harmonics::cpu {

constexpr uint32_t kMaxRegisters = 256;
constexpr int64_t kScratchBytes = 32 * 1024;

enum class Place : uint8_t {
  input,      // contiguous elements of a buffer
  repeated,   // broadcast buffer whose length divides the block: expanded into scratch once
  stretched,  // broadcast buffer, expanded into scratch for every block
  constant,   // expanded into scratch once
  scratch,
  output
};

struct ChainRegister {
  Place place;
  uint8_t width;    // bytes of an element
  uint32_t buffer;  // index, for input, repeated, stretched and output
  int64_t offset;   // in scratch memory, bytes
  int64_t period;   // repeated: elements
  uint32_t rank;    // stretched: the chain's shape with axes merged, and the buffer's strides
  int64_t dims[HX_MAX_RANK], strides[HX_MAX_RANK];
  uint64_t bits;  // constant: the element's bits
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
