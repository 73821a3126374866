// Tokens whose text follows a grammar.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/language/grammar.hpp"
#include "engine/language/tokenizer.hpp"

namespace harmonics::engine {

// For one sequence. Ends of text are allowed where the grammar may end; tokens without text never are.
class TokenConstraint {
 public:
  // `pieces`: the text of each token, as token_texts() gives it; `ends`: tokens that end the text.
  TokenConstraint(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const std::vector<std::string>> pieces,
                  std::vector<int32_t> ends);
  bool allows(int32_t id) const;
  // The token must be allowed.
  void accept(int32_t id);
  bool may_end() const { return text_.may_end(); }
  bool is_over() const { return !text_.may_go_on(); }  // nothing may follow

 private:
  GrammarText text_;
  std::array<bool, 256> first_{};  // by byte: whether a token may begin with it
  std::shared_ptr<const std::vector<std::string>> pieces_;
  std::vector<int32_t> ends_;
};

// The bytes of each token inside a text.
std::shared_ptr<const std::vector<std::string>> token_texts(const Tokenizer& tokenizer);

}  // namespace harmonics::engine
