// Continues the text of a session: takes a prompt and returns complete characters.
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

// What to do with a text or a conversation that no longer fits into the context.
enum class Overflow {
  stop,   // end it
  shift,  // drop half of the tokens after the first ones; for conversations, drop the oldest messages
};

struct ContinuationSettings : SamplerSettings {
  int64_t tokens = 256;  // maximum; 0: the prompt is computed, and no text
  FilterSettings filters;
  std::vector<std::string> stop;                           // strings that end the text; they are not part of it
  std::vector<int32_t> ends;                               // tokens that end the text
  bool usual_ends = true;                                  // begin and end tokens of the vocabulary end it too
  int64_t least = 0;                                       // number of tokens before which no token ends the text
  std::vector<int32_t> written;                            // control tokens whose text is part of the text
  bool all_written = false;                                // the texts of all control tokens are
  std::shared_ptr<const Grammar> grammar;                  // grammar of the text; null for none
  std::shared_ptr<const std::vector<std::string>> pieces;  // token_texts(); required by the grammar
  std::optional<size_t> log_probabilities;                 // report each token and this number of the most likely ones
  std::optional<size_t> prompt_probabilities;              // the same for the prompt, which is then computed anew
  Overflow overflow = Overflow::stop;
  int64_t keep = 0;                  // number of first tokens that Overflow::shift keeps
  std::shared_ptr<Drafter> drafter;  // null: the model computes one token per run
  int64_t draft_tokens = 8;          // maximum verified by one run
  std::optional<SamplerState> from;  // to continue a text
};

enum class EndOfText {
  tokens,   // ContinuationSettings::tokens was reached
  stop,     // one of ContinuationSettings::stop occurred, or the grammar is complete
  model,    // the model chose a token that ends the text or begins another one
  context,  // the context is full
};

// The tokens of a prompt. The first one has no probability.
struct PromptScores {
  int32_t first;
  std::vector<ScoredToken> others;
};

struct Continuation {
  int64_t prompt_tokens = 0, tokens = 0;
  int64_t reused_tokens = 0;          // tokens of the prompt that the session had already
  int64_t drafted = 0, accepted = 0;  // drafted tokens, and those accepted
  int64_t shifts = 0;                 // number of calls of shift()
  double prompt_seconds = 0, seconds = 0;
  EndOfText end = EndOfText::tokens;
  std::vector<ScoredToken> chosen;             // only with log_probabilities
  std::shared_ptr<const PromptScores> prompt;  // only with prompt_probabilities, when the prompt is computed
  size_t shown = 0;  // number of `chosen` in the returned text: neither end tokens nor those of a stop string
};

// Returns the tokens that end the answer of a model: its end of text, and those of known ends of turns that the
// vocabulary has as special tokens.
std::vector<int32_t> answer_ends(const Tokenizer& tokenizer);

// Returns the special tokens that mark reasoning and calls of tools in answers, which AnswerReader needs as text.
std::vector<int32_t> answer_marks(const Tokenizer& tokenizer);

// Returns the tokens across which penalties of repetitions do not extend: those with a line end, ':', '"' or '*'.
// `pieces`: token_texts().
std::vector<int32_t> dry_breakers(const std::vector<std::string>& pieces);

// Thrown if the context cannot hold a prompt.
class PromptTooLong : public Error {
 public:
  using Error::Error;
};

// A text that is generated step by step. Session and tokenizer must outlive it.
class Generation {
 public:
  // Sets the sequence of the session to `ids`; only the part that differs is computed. Throws ErrorKind::Usage if `ids`
  // are empty or do not fit into the context.
  Generation(Session& session, const Tokenizer& tokenizer, std::vector<int32_t> ids,
             const ContinuationSettings& settings);
  // Computes up to `chunk` tokens of the prompt, or one token of the text and the drafted tokens after it. Returns
  // complete characters that cannot belong to a stop string. Throws ErrorKind::Diverged if scores are not finite.
  std::string step(int64_t chunk = 256);
  // step() in parts, for steps over several sessions. wanted() returns the tokens to append next: up to `chunk` tokens
  // of the prompt, or one token of the text and up to `drafts` drafted tokens. needed_scores() returns which scores
  // after them take() needs. It is called when the session has appended them, possibly fewer than wanted. Its `scores`
  // must stay valid during the call.
  std::span<const int32_t> wanted(int64_t chunk, int64_t drafts = 0);
  StepPart::Scores needed_scores(size_t appended) const;
  std::string take(size_t appended, std::span<const float> scores, double seconds);
  // Whether tokens are still to be computed, of the prompt or after Overflow::shift.
  bool in_prompt() const { return read_ < prompt_; }
  bool is_over() const { return over_; }
  // Whether the tokens to be computed are those of a prompt with prompt_probabilities.
  bool scores_prompt() const { return settings_.prompt_probabilities && in_prompt() && !done_.prompt; }
  const Continuation& done() const { return done_; }
  // Maximum number of tokens of a prompt for which wanted() asks at once with prompt_probabilities: more would need
  // more memory for scores and are hardly faster.
  static constexpr int64_t kMostScored = 64;
  // Returns prompt and text, without the tokens dropped by Overflow::shift.
  std::span<const int32_t> tokens() const { return text_; }
  SamplerState sampler_state() const { return sampler_.state(); }

 private:
  std::span<const float> score_prompt(size_t appended, std::span<const float> rows);
  std::string choose(std::span<const float> scores);
  std::string verify(std::span<const float> rows);
  std::span<const float> row(size_t number) const;
  int64_t most_drafts() const;
  void shift();
  void drop_drafts();
  int64_t length() const;
  std::string text_of(int32_t id) const;
  std::string finish(EndOfText end);
  std::string add_text(const std::string& more);
  std::string returned(std::string text);

  Session& session_;
  const Tokenizer& tokenizer_;
  const ContinuationSettings settings_;
  std::vector<int32_t> text_;     // prompt and chosen tokens
  size_t prompt_ = 0, read_ = 0;  // number of tokens to compute before one is chosen; those in the session
  // The session contains drafted tokens after its first base_ tokens; the first verified_ of them belong to the text.
  // rows_ contains the scores before and after each of them.
  std::vector<DraftedToken> drafted_;
  std::span<const float> rows_;
  int64_t base_ = 0;
  size_t verified_ = 0;
  std::vector<DraftedToken> offered_;  // drafted by wanted()
  std::vector<int32_t> ids_;           // the result of wanted()
  Sampler sampler_;
  std::optional<TokenConstraint> constraint_;
  WholeCharacters characters_;
  StopTexts stop_;
  std::vector<size_t> begins_;       // of done_.chosen: bytes of text before each
  size_t added_ = 0, returned_ = 0;  // bytes of text passed to stop_; those returned
  int32_t previous_ = 0;
  std::vector<ScoredToken> prompt_scores_;  // becomes done_.prompt
  Continuation done_;
  bool over_ = false;
};

// Appends the prompt to the session and generates tokens. Calls `emit` with the text of the tokens, without the prompt,
// in complete UTF-8 characters. Throws ErrorKind::Usage if the prompt does not fit into the context, and
// ErrorKind::Diverged if scores are not finite.
Continuation continue_text(Session& session, const Tokenizer& tokenizer, std::string_view prompt,
                           const ContinuationSettings& settings, const std::function<void(const std::string&)>& emit);
// The same for a text that starts with `ids`. Calls `ended`, if not empty, with the finished generation.
Continuation continue_tokens(Session& session, const Tokenizer& tokenizer, std::vector<int32_t> ids,
                             const ContinuationSettings& settings, const std::function<void(const std::string&)>& emit,
                             const std::function<void(const Generation&)>& ended = {});

}  // namespace harmonics::engine
