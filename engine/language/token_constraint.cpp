#include "engine/language/token_constraint.hpp"

#include <algorithm>

#include <harmonics/error.hpp>

namespace harmonics::engine {

TokenConstraint::TokenConstraint(std::shared_ptr<const Grammar> grammar,
                                 std::shared_ptr<const std::vector<std::string>> pieces, std::vector<int32_t> ends)
    : text_(std::move(grammar)), first_(text_.next_bytes()), pieces_(std::move(pieces)), ends_(std::move(ends)) {}

bool TokenConstraint::allows(int32_t id) const {
  if (std::find(ends_.begin(), ends_.end(), id) != ends_.end()) return may_end();
  const std::string& piece = (*pieces_)[static_cast<size_t>(id)];
  return !piece.empty() && first_[static_cast<unsigned char>(piece[0])] && text_.allows(piece);
}

void TokenConstraint::accept(int32_t id) {
  if (std::find(ends_.begin(), ends_.end(), id) != ends_.end()) return;
  if (!text_.append((*pieces_)[static_cast<size_t>(id)]))
    throw Error(ErrorKind::Internal, "a token does not follow the grammar");
  first_ = text_.next_bytes();
}

std::shared_ptr<const std::vector<std::string>> token_texts(const Tokenizer& tokenizer) {
  auto all = std::make_shared<std::vector<std::string>>();
  // Decoded after another token, because a tokenizer may drop the space before the first token.
  const int32_t before = tokenizer.bos() == 0 ? 1 : 0;
  for (int32_t id = 0; id < tokenizer.size(); ++id)
    all->push_back(id == tokenizer.unknown() ? "" : tokenizer.decode(id, before));
  return all;
}

}  // namespace harmonics::engine
