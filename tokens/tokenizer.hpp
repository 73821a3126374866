// Creates tokenizers from vocabularies.
#pragma once

#include <memory>
#include <string>

#include <harmonics/importer.hpp>

#include "tokens/vocabulary.hpp"

namespace harmonics::tokens {

// Throws ErrorKind::Weights, with the path and the location, for an inconsistent vocabulary: ids out of range, byte
// tokens that name no byte, merges with an empty part, expressions that do not compile. `path` is for messages. The
// tokenizer is thread-safe and takes valid UTF-8.
std::unique_ptr<TextTokenizer> make_tokenizer(Vocabulary vocabulary, const std::string& path);

}  // namespace harmonics::tokens
