// Opens the tokenizer of a corpus and converts examples to tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/corpus/example.hpp"
#include "engine/language/tokenizer.hpp"

namespace harmonics::engine {

struct CorpusTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> format;  // the model's chat template, or ChatML; null if it is unknown
  std::string json;                            // tokenizer.json of "characters" and "bytes"; otherwise empty
};

// Opens a tokenizer. `name` is a file or folder of a model or a tokenizer, "bytes", or "characters": a vocabulary of
// all characters in the plain texts at the paths `texts`. `chat_template` is a file, or "" for that of the model.
// Throws the errors of opening them, and ErrorKind::Usage if `name` is empty.
CorpusTokenizer open_corpus_tokenizer(const std::string& name, const std::string& chat_template,
                                      const std::vector<std::string>& texts);

// Return the tokenizer.json of a vocabulary of these characters, in this order, and of one of the 256 bytes.
std::string characters_tokenizer_json(std::u32string_view characters);
std::string bytes_tokenizer_json();
// Returns whether the text is a tokenizer.json that characters_tokenizer_json() wrote.
bool holds_characters(const std::string& json);

// Returns the ids of an example, with ~id for tokens that are not learned. The bounds of a learned range are found by
// tokenizing the text up to them: a token across the start of a range is learned, a token across its end is not.
std::vector<int32_t> tokens_of(const TextExample& example, const Tokenizer& tokenizer);

}  // namespace harmonics::engine
