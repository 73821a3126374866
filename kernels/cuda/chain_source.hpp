// Elementwise chains as CUDA C source.
#pragma once

#include <string>
#include <vector>

#include "work.hpp"

namespace harmonics::cuda {

// The program of a call site. Sizes are parameters, so all shapes with the same broadcasting share it.
struct ChainSource {
  std::string text;                  // defines a kernel named "chain"
  std::vector<uint32_t> parameters;  // number of elements, then the walks
  std::vector<bool> same;            // by input: whether it has the layout of the result
};

// Returns false (declined) if an operation does not exist for its types.
bool chain_source(const hx_call_site& site, ChainSource& out);

constexpr uint32_t kElementsOfThread = 4;

// Fused reduction of the last result of a chain, in the order of reduce.cu, with the same parameters.
struct ChainReduction {
  std::string rule;  // "reduce_sum" ...
  hx_type whole;     // type of all terms
  Walk kept, reduced;
  uint32_t results, terms, chunks, chunk;
  uint32_t lanes;  // threads per result and chunk; 0: one thread
  uint32_t to;     // storage type of the sums
};
// Likewise with a reduction of the last result; the other results are stored. The kernel's last buffer receives the
// sums.
bool reduced_chain_source(const hx_call_site& site, const ChainReduction& reduction, ChainSource& out);

}  // namespace harmonics::cuda
