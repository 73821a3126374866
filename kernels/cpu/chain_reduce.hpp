// A chain whose last result is joined along axes as it is computed, in the order a reduction of the stored result has.
#pragma once

#include "elementwise.hpp"
#include "reduce.hpp"

namespace harmonics::cpu {

// Stage 0 of `stages` reads the chain instead of memory. Along the last axis its parts take whole runs; along others every unit
// joins a group of kReduceGroup rows, in a slice of the columns, and a phase of its own joins the groups.
struct ChainReduceContext {
  ChainContext chain;
  uint32_t reduced;  // register
  ReduceContext stages;
  int64_t groups;       // of a chunk, at most
  uint32_t slices;      // of the columns
  uint32_t parts, join_parts;  // join_parts 0: groups are results
  uint32_t workspace;   // buffer
  int64_t partials;     // floats into the workspace: the groups' results
};

constexpr int64_t kSliceGranule = 64;

}  // namespace harmonics::cpu
