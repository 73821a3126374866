// Weights of the type mxfp4, each stored as two tensors of a folder: codes and scales.
#pragma once

#include "weights.hpp"

namespace huggingface {

inline constexpr uint64_t kCodesOfBlock = 16;  // bytes: 32 codes
inline constexpr const char* kBlocks = "_blocks";
inline constexpr const char* kScales = "_scales";

// Replaces the tensors "w_blocks" [.., n, 16] and "w_scales" [.., n] of each such weight by one of 32 n columns, with
// its scales apart. Throws ErrorKind::Weights for missing or inconsistent tensors.
void join_mxfp4(StoredWeights& weights, const harmonics::ImportSource& source);
// Replaces the two names of each such weight by its own.
void join_names_of_blocks(std::vector<std::string>& names);

// Converts between blocks of a folder (codes of neighbours share a byte, scales apart) and of GGUF (a scale, then bytes
// of codes that are 16 apart). Both have the same codes.
void join_blocks(const char* codes, const char* scales, uint64_t blocks, char* gguf);
void part_blocks(const char* gguf, uint64_t blocks, char* codes, char* scales);

}  // namespace huggingface
