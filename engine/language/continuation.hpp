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
#include "engine/language/stop_texts.hpp"
#include "engine/language/token_constraint.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/language/whole_characters.hpp"

namespace harmonics::engine {

struct ContinuationSettings : SamplerSettings {
  int64_t tokens = 256;  // at most
  FilterSettings filters;
  std::vector<std::string> stop;                           // texts that end the text, and are not part of it
  std::vector<int32_t> ends;                               // tokens that end it, beside the tokenizer's begin and end
  std::shared_ptr<const Grammar> grammar;                  // that the text follows; null: none
  std::shared_ptr<const std::vector<std::string>> pieces;  // token_texts(), for the grammar
  std::optional<size_t> log_probabilities;                 // of each token, beside so many of the most likely ones
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
  int64_t reused_tokens = 0;  // of the prompt, already in the session
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
  // Computes up to `chunk` tokens of the prompt, or one token of the text. Returns the characters that are certain.
  // Throws ErrorKind::Diverged if scores are not finite.
  std::string step(int64_t chunk = 256);
  // The same for steps over several sessions: the tokens to append next, up to `chunk` of the prompt or one of the
  // text, whether the scores after them are needed, and what to do when the session has them. The scores must stay
  // valid during take().
  std::span<const int32_t> wanted(int64_t chunk) const;
  bool needs_scores(size_t appended) const { return read_ + appended >= ids_.size(); }
  std::string take(size_t appended, std::span<const float> scores, double seconds);
  bool in_prompt() const { return read_ < ids_.size(); }
  bool is_over() const { return over_; }
  const Continuation& done() const { return done_; }

 private:
  std::string choose(std::span<const float> scores);
  std::string finish(EndOfText end);

  Session& session_;
  const Tokenizer& tokenizer_;
  const ContinuationSettings settings_;
  std::vector<int32_t> ids_;
  size_t read_ = 0;  // of ids_
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

}  // namespace harmonics::engine
