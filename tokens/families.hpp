// The families of byte-pair vocabularies by the name that GGUF gives them in tokenizer.ggml.pre.
#pragma once

#include <string>
#include <string_view>

#include "tokens/vocabulary.hpp"

namespace harmonics::tokens {

// GPT-2's words: contractions, letters, numbers and other characters with a space in front, white space.
extern const char* const kGpt2Words;

// Sets the divisions of a family, its byte alphabet, whether words are taken whole and whether texts begin with the
// begin id. False: the name is not known.
bool set_family(Vocabulary& vocabulary, std::string_view name);
// The first name of each family, for messages.
std::string family_names();

}  // namespace harmonics::tokens
