// SentencePiece vocabularies of merged pairs (Kudo and Richardson 2018): neighbours are joined by the score of the
// token that they make; what is no token becomes bytes.
#pragma once

#include <memory>
#include <string>

#include "vocabulary.hpp"

namespace harmonics::tokens {

std::unique_ptr<Tokenizer> open_sentence_pieces(const harmonics::GgufFile& file, const std::string& path);

}  // namespace harmonics::tokens
