// Makes tokenizers of vocabularies.
#pragma once

#include <memory>
#include <string>

#include <harmonics/importer.hpp>

#include "tokens/vocabulary.hpp"

namespace harmonics::tokens {

// `path` is for messages. Throws ErrorKind::Weights, with the path and the place, for a vocabulary that contradicts
// itself: ids outside it, a byte's token that names no byte, merges of no parts, expressions that cannot be read.
// The tokenizer is used by any threads at once. Texts it is given are valid UTF-8.
std::unique_ptr<TextTokenizer> make_tokenizer(Vocabulary vocabulary, const std::string& path);

}  // namespace harmonics::tokens
