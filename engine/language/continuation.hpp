// A session continues a text: prompt in, characters out as they are complete.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/language/decoder.hpp"
#include "engine/language/sampler.hpp"
#include "engine/language/speculation.hpp"
#include "engine/language/stop_texts.hpp"
#include "engine/language/token_constraint.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/language/whole_characters.hpp"

namespace harmonics::engine {

// What happens to a text or a conversation that no longer fits into the context.
enum class Overflow {
  stop,   // it ends
  shift,  // of a text, half of the tokens behind the first ones go; of a conversation, the oldest messages
};

struct ContinuationSettings : SamplerSettings {
  int64_t tokens = 256;  // at most
  FilterSettings filters;
  std::vector<std::string> stop;                           // texts that end the text, and are not part of it
  std::vector<int32_t> ends;                               // tokens that end it, beside the tokenizer's begin and end
  std::shared_ptr<const Grammar> grammar;                  // that the text follows; null: none
  std::shared_ptr<const std::vector<std::string>> pieces;  // token_texts(), for the grammar
  std::optional<size_t> log_probabilities;                 // of each token, beside so many of the most likely ones
  Overflow overflow = Overflow::stop;
  int64_t keep = 0;                  // first tokens that Overflow::shift leaves
  std::shared_ptr<Drafter> drafter;  // null: the model chooses each token in a run of its own
  int64_t draft_tokens = 8;          // that one run verifies at most
  std::optional<SamplerState> from;  // of a text that goes on
};

enum class EndOfText {
  tokens,   // ContinuationSettings::tokens is reached
  stop,     // one of ContinuationSettings::stop, or the grammar allows nothing more
  model,    // the model chose its end of text, or began another one
  context,  // the context is full
};

// A token of the text.
struct GeneratedToken {
  int32_t id;
  double log_probability;
  std::vector<TokenProbability> best;
};

struct Continuation {
  int64_t prompt_tokens = 0, tokens = 0;
  int64_t reused_tokens = 0;          // of the prompt, already in the session
  int64_t drafted = 0, accepted = 0;  // tokens of the drafter, and those of them that the text has
  int64_t shifts = 0;                 // times that the context was full
  double prompt_seconds = 0, seconds = 0;
  EndOfText end = EndOfText::tokens;
  std::vector<GeneratedToken> chosen;  // with log_probabilities
};

// Tokens that end a model's answer: its end of text, and the ends of a turn that chat formats have, where the
// vocabulary has them as special tokens.
std::vector<int32_t> answer_ends(const Tokenizer& tokenizer);

// A text that is generated step by step. Session and tokenizer must outlive it.
class Generation {
 public:
  // Makes the session's sequence `ids`, of which only what differs is computed. Throws ErrorKind::Usage if they are
  // empty, or do not fit into the context.
  Generation(Session& session, const Tokenizer& tokenizer, std::vector<int32_t> ids,
             const ContinuationSettings& settings);
  // Computes up to `chunk` tokens of the prompt, or one token of the text and the drafted tokens behind it that prove
  // right. Returns the characters that are certain. Throws ErrorKind::Diverged if scores are not finite.
  std::string step(int64_t chunk = 256);
  // The same for steps over several sessions: the tokens to append next, up to `chunk` of the prompt, or one of the
  // text and up to `drafts` drafted ones behind it; whether the scores after them are needed; and what to do when the
  // session has them. Behind drafts the scores are those after each token, else those after the last one. Fewer tokens
  // may be appended than were wanted. The scores must stay valid during take().
  std::span<const int32_t> wanted(int64_t chunk, int64_t drafts = 0);
  bool needs_scores(size_t appended) const { return read_ + appended >= prompt_; }
  std::string take(size_t appended, std::span<const float> scores, double seconds);
  // Tokens are to be read: of the prompt, or what Overflow::shift has left.
  bool in_prompt() const { return read_ < prompt_; }
  bool is_over() const { return over_; }
  const Continuation& done() const { return done_; }
  // Prompt and text, without what Overflow::shift dropped.
  std::span<const int32_t> tokens() const { return text_; }
  SamplerState sampler_state() const { return sampler_.state(); }

 private:
  std::string choose(std::span<const float> scores);
  std::string verify(std::span<const float> rows);
  std::span<const float> row(size_t number) const;
  int64_t most_drafts() const;
  void shift();
  void drop_drafts();
  int64_t length() const;
  std::string finish(EndOfText end);

  Session& session_;
  const Tokenizer& tokenizer_;
  const ContinuationSettings settings_;
  std::vector<int32_t> text_;     // prompt and chosen tokens
  size_t prompt_ = 0, read_ = 0;  // tokens to read before one is chosen, and those in the session
  // The session holds drafted tokens behind its first base_, of which the first verified_ are the text's; rows_ has the
  // scores before and after each of them.
  std::vector<DraftedToken> drafted_;
  std::span<const float> rows_;
  int64_t base_ = 0;
  size_t verified_ = 0;
  std::vector<DraftedToken> offered_;  // by wanted()
  std::vector<int32_t> ids_;           // what it returned with them
  Sampler sampler_;
  std::optional<TokenConstraint> constraint_;
  WholeCharacters characters_;
  StopTexts stop_;
  int32_t previous_ = 0;
  Continuation done_;
  bool over_ = false;
};

// Appends the prompt to the session and then tokens one by one; `emit` receives the text of the tokens, not the
// prompt's, in whole UTF-8 characters. Throws ErrorKind::Usage if the prompt does not fit into the context and
// ErrorKind::Diverged if scores are not finite.
Continuation continue_text(Session& session, const Tokenizer& tokenizer, std::string_view prompt,
                           const ContinuationSettings& settings, const std::function<void(const std::string&)>& emit);
// The same for a text that `ids` begin; `ended` sees it before it goes. May be empty.
Continuation continue_tokens(Session& session, const Tokenizer& tokenizer, std::vector<int32_t> ids,
                             const ContinuationSettings& settings, const std::function<void(const std::string&)>& emit,
                             const std::function<void(const Generation&)>& ended = {});

}  // namespace harmonics::engine
