// Fused chain and reduction: reduces the chain's last result as it is computed. The order of summation equals that of a
// separate reduction.
#pragma once

#include "elementwise.hpp"
#include "reduce.hpp"

namespace harmonics::cpu {

// Stage 0 of `stages` reads the chain instead of memory. Along the last axis, a part takes whole rows. Along other
// axes, a unit reduces a group of kReduceGroup rows in a slice of the columns, and a second phase combines the groups.
struct ChainReduceContext {
  ChainContext chain;
  uint32_t reduced;  // register
  ReduceContext stages;
  int64_t groups;              // per chunk, at most
  uint32_t slices;             // of the columns
  uint32_t parts, join_parts;  // join_parts 0: no second phase, the groups are the results
  uint32_t workspace;          // buffer
  int64_t partials;            // offset of the groups' partial results in the workspace, floats
};

constexpr int64_t kSliceGranule = 64;

}  // namespace harmonics::cpu
