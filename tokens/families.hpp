// The families of byte-pair vocabularies, by their name in GGUF's tokenizer.ggml.pre.
#pragma once

#include <string>
#include <string_view>

#include "tokens/vocabulary.hpp"

namespace harmonics::tokens {

// GPT-2's word expression: contractions; letters, numbers or other characters with an optional space before them; white
// space.
extern const char* const kGpt2Words;

// Sets the family's divisions, and whether the vocabulary has a byte alphabet, encodes whole words first and adds the
// begin id. Returns false for an unknown name.
bool set_family(Vocabulary& vocabulary, std::string_view name);
// Returns the first name of each family, for messages.
std::string family_names();

}  // namespace harmonics::tokens
