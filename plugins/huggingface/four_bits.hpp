// Weights in the 4-bit types of bitsandbytes, each stored as several tensors of a folder.
#pragma once

#include "weights.hpp"

namespace huggingface {

// Replaces the tensors of each such weight ("w" with "w.absmax", "w.quant_map", "w.quant_state.bitsandbytes__nf4", and
// "w.nested_absmax" if its scales are quantised) by one tensor of type nf4_64 or fp4_64 with the same values. Throws
// ErrorKind::Weights for missing or inconsistent tensors, and for block sizes other than 64.
void join_four_bits(StoredWeights& weights, const harmonics::ImportSource& source);

}  // namespace huggingface
