// TokenConstraint: restricts tokens to those whose text follows a grammar.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/language/grammar.hpp"
#include "engine/language/tokenizer.hpp"

namespace harmonics::engine {

// For one sequence. Tokens that end the text are allowed where the grammar may end. Tokens without text are never
// allowed.
class TokenConstraint {
 public:
  // `pieces` is the text of each token, as returned by token_texts(); `ends` are the tokens that end the text.
  TokenConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const std::vector<std::string>> pieces,
                  std::vector<int32_t> ends);
  bool allows(int32_t id) const;
  // Appends a token, which must be allowed.
  void accept(int32_t id);
  bool may_end() const { return text_.may_end(); }
  bool is_over() const { return !text_.may_go_on(); }  // nothing may follow

 private:
  GrammarText text_;
  std::array<bool, 256> first_{};  // by byte: whether a token may start with it
  std::shared_ptr<const std::vector<std::string>> pieces_;
  std::vector<int32_t> ends_;
};

// Returns the bytes of each token inside a text.
std::shared_ptr<const std::vector<std::string>> token_texts(const Tokenizer& tokenizer);

}  // namespace harmonics::engine
