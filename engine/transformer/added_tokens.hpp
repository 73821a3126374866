// Adds special tokens to a Hugging Face folder: to its tokenizer, configuration and tables.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace harmonics::engine {

struct AddedTokens {
  std::vector<std::string> texts;            // tokens that the tokenizer already has are not changed
  std::map<std::string, std::string> roles;  // text by role, such as "eos_token"; also added if new
};

struct AddedRows {
  std::vector<std::pair<std::string, int64_t>> tokens;  // new texts and their ids
  std::vector<std::string> known;                       // texts that the tokenizer had, without those given a role
  int64_t before = 0, after = 0;                        // number of rows of the tables
  std::vector<std::string> resized;                     // names of resized tensors in the files
};

// Returns the supported roles: bos_token, eos_token, pad_token, unk_token.
const std::vector<std::string>& token_roles();

// Parses tokens: "TEXT", or "eos_token=TEXT" for one with a role. Throws ErrorKind::Usage for a misspelled role and for
// a token without text.
AddedTokens added_tokens_of(const std::vector<std::string>& given);

// Returns a tokenizer.json with these special tokens appended. `added` receives the new ones with their ids. Throws
// ErrorKind::Weights for an invalid tokenizer.json, and ErrorKind::Usage for an empty token.
std::string with_added_tokens(std::string_view tokenizer_json, const std::vector<std::string>& texts,
                              const std::string& name, std::vector<std::pair<std::string, int64_t>>* added = nullptr);

// Modifies a folder in place. In tables of embeddings and heads, each new token receives a row with the mean of the
// rows of existing tokens; surplus rows of the tables are used first. Writes config.json last. Throws
// ErrorKind::Weights for a folder without tokenizer.json, vocab_size or tables, and ErrorKind::Output if a file cannot
// be written.
AddedRows add_special_tokens(const std::string& folder, const AddedTokens& tokens);

}  // namespace harmonics::engine
