// Byte-level byte-pair encoding (Sennrich et al. 2016, Radford et al. 2019): bytes of a word are joined in the order of
// a list of merges.
#pragma once

#include <memory>
#include <string>

#include "vocabulary.hpp"

namespace harmonics::tokens {

std::unique_ptr<Tokenizer> open_byte_pairs(const harmonics::GgufFile& file, const std::string& path);

}  // namespace harmonics::tokens
