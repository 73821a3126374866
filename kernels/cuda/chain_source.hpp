// Elementwise chains as CUDA C.
#pragma once

#include <string>
#include <vector>

#include "work.hpp"

namespace harmonics::cuda {

// The program of one call site: the same for all shapes that lie alike. Sizes are its parameters.
struct ChainSource {
  std::string text;                  // with a kernel named "chain"
  std::vector<uint32_t> parameters;  // the number of elements, then the walks
  std::vector<bool> same;            // inputs that lie as the result does
};

// False, and declined, when some operation has no meaning in its types.
bool chain_source(const hx_call_site& site, ChainSource& out);

constexpr uint32_t kElementsOfThread = 4;

}  // namespace harmonics::cuda
