// Elementwise chains as CUDA C.
#pragma once

#include <string>
#include <vector>

#include "work.hpp"

namespace harmonics::cuda {

// The program of a call site, shared by all shapes with the same broadcasting; sizes are parameters.
struct ChainSource {
  std::string text;                  // defines a kernel named "chain"
  std::vector<uint32_t> parameters;  // number of elements, then the walks
  std::vector<bool> same;            // by input: same layout as the result
};

// Declines if an operation does not exist for its types.
bool chain_source(const hx_call_site& site, ChainSource& out);

constexpr uint32_t kElementsOfThread = 4;

}  // namespace harmonics::cuda
