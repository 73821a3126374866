// Weights in the 4-bit types of bitsandbytes, which are several tensors of a folder each.
#pragma once

#include "weights.hpp"

namespace huggingface {

// Replaces the tensors of each such weight ("w" with "w.absmax", "w.quant_map", "w.quant_state.bitsandbytes__nf4", and
// "w.nested_absmax" where scales are quantised once more) by one of the type nf4_64 or fp4_64 with the same numbers.
// Throws ErrorKind::Weights for tensors that are missing or do not fit, and for blocks of other sizes than 64.
void join_four_bits(StoredWeights& weights, const harmonics::ImportSource& source);

}  // namespace huggingface
