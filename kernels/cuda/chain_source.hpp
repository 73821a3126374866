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

// How the last result of a chain is reduced as it is computed: in the order of reduce.cu, whose parameters these are.
struct ChainReduction {
  std::string rule;  // reduce_sum ...
  hx_type whole;     // of the terms
  Walk kept, reduced;
  uint32_t results, terms, chunks, chunk;
  uint32_t lanes;  // threads per result and chunk; 0: a thread for each
  uint32_t to;     // type that sums are stored in
};
// Results but the last are stored; the kernel's last buffer takes the sums.
bool reduced_chain_source(const hx_call_site& site, const ChainReduction& reduction, ChainSource& out);

}  // namespace harmonics::cuda
