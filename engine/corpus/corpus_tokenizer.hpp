// The tokenizer of a corpus, and examples as tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/corpus/example.hpp"
#include "engine/language/tokenizer.hpp"

namespace harmonics::engine {

struct CorpusTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> format;  // the model's own, or ChatML
  std::string json;                            // tokenizer.json, if it was made here: of "characters" and "bytes"
};

// `name`: a file or folder of a model or a tokenizer; "bytes"; or "characters": those of the texts at `texts`.
// `chat_template`: a file, or "": the model's own. Throws what opening them throws.
CorpusTokenizer open_corpus_tokenizer(const std::string& name, const std::string& chat_template,
                                      const std::vector<std::string>& texts);

// tokenizer.json of a vocabulary of characters, in their order, and of the 256 bytes.
std::string characters_tokenizer_json(std::u32string_view characters);
std::string bytes_tokenizer_json();

// The ids of an example: ~id where it is not learned. A token is learned if no part of it lies before the learned range
// and it does not reach over the range's end; ranges are found by tokenizing what comes before their ends.
std::vector<int32_t> tokens_of(const TextExample& example, const Tokenizer& tokenizer);

}  // namespace harmonics::engine
