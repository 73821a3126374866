// Special tokens that are added to a folder of Hugging Face: to its tokenizer, its configuration and its tables.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace harmonics::engine {

struct AddedTokens {
  std::vector<std::string> texts;            // those that the tokenizer has already are left as they are
  std::map<std::string, std::string> roles;  // "eos_token" -> a text, which is added too
};

struct AddedRows {
  std::vector<std::pair<std::string, int64_t>> tokens;  // new texts and their ids
  int64_t before = 0, after = 0;                        // rows of the tables
  std::vector<std::string> resized;                     // tensors, by their names in the files
};

// The roles that a tokenizer's configuration knows: bos_token, eos_token, pad_token, unk_token.
const std::vector<std::string>& token_roles();

// "TEXT" is a token, "eos_token=TEXT" one with that role.
AddedTokens added_tokens_of(const std::vector<std::string>& given);

// A tokenizer.json with these special tokens behind its last one; `added` gets those that are new, with their ids.
// Throws ErrorKind::Weights for text that is no tokenizer.json, ErrorKind::Usage for an empty token.
std::string with_added_tokens(std::string_view tokenizer_json, const std::vector<std::string>& texts,
                              const std::string& name, std::vector<std::pair<std::string, int64_t>>* added = nullptr);

// Changes a folder in place. Tables of embeddings and heads get a row for each new token, the mean of the rows of the
// tokens before; a tied head has none of its own. Rows that the tables have beyond the tokenizer are used first. Throws
// ErrorKind::Weights for a folder without tokenizer.json, vocab_size or such tables, ErrorKind::Output if a file cannot
// be written. config.json is written last.
AddedRows add_special_tokens(const std::string& folder, const AddedTokens& tokens);

}  // namespace harmonics::engine
