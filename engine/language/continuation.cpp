#include "engine/language/continuation.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/language/chat_answer.hpp"
#include "engine/tensor/finite.hpp"

namespace harmonics::engine {

namespace {

using TextClock = std::chrono::steady_clock;

double since(TextClock::time_point begin) { return std::chrono::duration<double>(TextClock::now() - begin).count(); }

void expect_finite(std::span<const float> scores, const std::string& token) {
  if (first_not_finite(DType::F32, scores.data(), static_cast<int64_t>(scores.size())) >= 0)
    throw Error(ErrorKind::Diverged, fmt::format("{}: its scores are infinite or NaN", token), {},
                {"the weights, or what they compute, are not finite"});
}

// Returns the settings with those that follow from the vocabulary.
ContinuationSettings completed(const Tokenizer& tokenizer, ContinuationSettings settings) {
  for (const std::optional<int32_t> end : {tokenizer.eos(), tokenizer.bos()})
    if (end && settings.usual_ends) settings.ends.push_back(*end);
  for (const int32_t end : settings.ends)
    if (end < 0 || end >= tokenizer.size())
      throw Error(ErrorKind::Usage,
                  fmt::format("the token {}, which is to end the text, is outside the vocabulary of {}", end,
                              tokenizer.size()));
  if (settings.grammar && !settings.pieces) settings.pieces = token_texts(tokenizer);
  return settings;
}

// Whether answers are sequences of messages in channels: <|end|> ends a message, not the answer.
bool has_channels(const Tokenizer& tokenizer) {
  return std::all_of(std::begin(kMessageMarks), std::end(kMessageMarks),
                     [&](std::string_view mark) { return tokenizer.special_token(mark).has_value(); });
}

}  // namespace

std::vector<int32_t> answer_ends(const Tokenizer& tokenizer) {
  constexpr const char* kEnds[] = {"<|im_end|>",     "<|eot_id|>", "<|eom_id|>",      "<|end_of_text|>",
                                   "<|endoftext|>",  "<|end|>",    "<end_of_turn>",   "<|end_of_role|>",
                                   "<|return|>",     "<|call|>",   "<|end_of_turn|>", "<｜end▁of▁sentence｜>",
                                   "<|endofprompt|>"};
  std::vector<int32_t> ids;
  for (const char* end : kEnds)
    if (const auto id = tokenizer.special_token(end);
        id && !(has_channels(tokenizer) && end == std::string_view("<|end|>")))
      ids.push_back(*id);
  return ids;
}

std::vector<int32_t> answer_marks(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string_view mark : kAnswerMarks)
    if (const auto id = tokenizer.special_token(mark)) ids.push_back(*id);
  if (has_channels(tokenizer))
    for (const std::string_view mark : kMessageMarks) ids.push_back(*tokenizer.special_token(mark));
  return ids;
}

std::vector<int32_t> dry_breakers(const std::vector<std::string>& pieces) {
  std::vector<int32_t> ids;
  for (size_t id = 0; id < pieces.size(); ++id)
    if (pieces[id].find_first_of("\n:\"*") != std::string::npos) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

namespace {

void expect_combination(const ContinuationSettings& s, const Session& session) {
  if (s.overflow == Overflow::shift && s.keep > session.context() - 2)
    throw Error(ErrorKind::Usage,
                fmt::format("keeping {} tokens leaves none to drop of a context of {}", s.keep, session.context()));
  if (!s.drafter || !s.drafter->draws() || s.temperature <= 0) return;
  const char* with = s.grammar ? "a grammar" : s.filters.mirostat > 0 ? "mirostat" : nullptr;
  if (with)
    throw Error(ErrorKind::Usage, fmt::format("tokens drawn from a draft model cannot be verified with {}", with), {},
                {"take --temperature 0, or --lookup N instead of --draft"});
}

}  // namespace

Generation::Generation(Session& session, const Tokenizer& tokenizer, std::vector<int32_t> ids,
                       const ContinuationSettings& settings)
    : session_(session),
      tokenizer_(tokenizer),
      settings_(completed(tokenizer, settings)),
      text_(std::move(ids)),
      prompt_(text_.size()),
      sampler_(settings_, settings_.filters, tokenizer.size()),
      stop_(settings_.stop) {
  if (text_.empty())
    throw Error(ErrorKind::Usage, "the prompt is empty, and the tokenizer has no token to begin with", {},
                {"give a text to continue"});
  expect_combination(settings_, session);
  done_.prompt_tokens = static_cast<int64_t>(prompt_);
  if (done_.prompt_tokens > session.context())
    throw PromptTooLong(ErrorKind::Usage,
                        fmt::format("the prompt has {}, but the context holds {}",
                                    quantity(done_.prompt_tokens, "token"), session.context()),
                        {}, {"shorten the prompt, or give a larger --context"});
  done_.reused_tokens = session.begin(text_, settings_.prompt_probabilities ? 0 : INT64_MAX);
  read_ = static_cast<size_t>(done_.reused_tokens);
  for (const int32_t id : text_) sampler_.observe(id);
  if (settings_.from) sampler_.resume(*settings_.from);
  previous_ = text_.back();
  if (settings_.grammar) constraint_.emplace(settings_.grammar, settings_.pieces, settings_.ends);
}

std::string Generation::step(int64_t chunk) {
  if (over_) return "";
  const auto begin = TextClock::now();
  const std::span<const int32_t> tokens = wanted(chunk, settings_.draft_tokens);
  const std::span<const float> scores =
      needed_scores(tokens.size()) == StepPart::all ? session_.append_all(tokens) : session_.append(tokens);
  return take(tokens.size(), scores, since(begin));
}

// Returns how many drafted tokens fit into the context and the limit of tokens after the next token.
int64_t Generation::most_drafts() const {
  return std::min(session_.context() - session_.length() - 1, settings_.tokens - done_.tokens - 1);
}

std::span<const int32_t> Generation::wanted(int64_t chunk, int64_t drafts) {
  if (in_prompt()) {
    if (scores_prompt()) chunk = std::min(chunk, kMostScored);
    const auto most = static_cast<size_t>(std::max<int64_t>(chunk, 1));
    return std::span(text_).subspan(read_, std::min(prompt_ - read_, most));
  }
  offered_.clear();
  drafts = std::min({drafts, settings_.draft_tokens, most_drafts()});
  if (settings_.drafter && drafts > 0) offered_ = settings_.drafter->draft(text_, drafts, sampler_);
  ids_.assign(1, previous_);
  for (const DraftedToken& token : offered_) ids_.push_back(token.id);
  return ids_;
}

StepPart::Scores Generation::needed_scores(size_t appended) const {
  if (!in_prompt()) return appended > 1 ? StepPart::all : StepPart::last;
  if (scores_prompt()) return StepPart::all;
  return read_ + appended < prompt_ ? StepPart::none : StepPart::last;
}

// Scores the tokens of the prompt that follow the appended ones. Returns the last row.
std::span<const float> Generation::score_prompt(size_t appended, std::span<const float> rows) {
  const size_t width = rows.size() / appended;
  for (size_t i = 0; i < appended && read_ + i + 1 < prompt_; ++i) {
    const std::span<const float> scores = rows.subspan(i * width, width);
    const int32_t id = text_[read_ + i + 1];
    expect_finite(scores, fmt::format("token {} of the prompt has no probability", read_ + i + 2));
    if (id < 0 || static_cast<size_t>(id) >= width)
      throw Error(ErrorKind::Usage, fmt::format("token {} at place {} is outside the model's vocabulary of {}", id,
                                                read_ + i + 1, width));
    prompt_scores_.push_back(scored_token(scores, id, *settings_.prompt_probabilities));
  }
  if (read_ + appended >= prompt_)
    done_.prompt = std::make_shared<const PromptScores>(PromptScores{text_.front(), std::move(prompt_scores_)});
  return rows.last(width);
}

std::string Generation::take(size_t appended, std::span<const float> scores, double seconds) {
  (in_prompt() && done_.tokens == 0 ? done_.prompt_seconds : done_.seconds) += seconds;
  if (in_prompt()) {
    if (scores_prompt()) scores = score_prompt(appended, scores);
    read_ += appended;
    if (in_prompt()) return "";
    if (settings_.tokens == 0) return finish(EndOfText::tokens);
    appended = 1;
  }
  const auto begin = TextClock::now();
  offered_.resize(appended - 1);
  std::string text = offered_.empty() ? choose(scores) : verify(scores);
  done_.seconds += since(begin);
  return text;
}

// Chooses tokens while they match the drafted ones, which are in the session already.
std::string Generation::verify(std::span<const float> rows) {
  drafted_ = std::move(offered_);
  offered_.clear();
  rows_ = rows;
  base_ = session_.length() - static_cast<int64_t>(drafted_.size());
  verified_ = 0;
  done_.drafted += static_cast<int64_t>(drafted_.size());
  std::string text = choose(row(0));
  while (!over_ && verified_ < drafted_.size() && drafted_[verified_].id == previous_) {
    ++done_.accepted;
    text += choose(row(++verified_));
  }
  drop_drafts();
  return text;
}

std::span<const float> Generation::row(size_t number) const {
  const size_t width = rows_.size() / (drafted_.size() + 1);
  return rows_.subspan(number * width, width);
}

// Returns the number of tokens of the text in the session.
int64_t Generation::length() const {
  return drafted_.empty() ? session_.length() : base_ + static_cast<int64_t>(verified_);
}

void Generation::drop_drafts() {
  if (!drafted_.empty()) session_.keep(length());
  drafted_.clear();
  verified_ = 0;
}

// Drops half of the tokens after the first `keep` ones. The remaining ones are computed again at their new positions,
// so that the caches are those of a text that the model could have read.
void Generation::shift() {
  drop_drafts();
  const int64_t behind = session_.length() - settings_.keep, dropped = std::max<int64_t>(1, behind / 2);
  const auto first = text_.begin() + settings_.keep;
  text_.erase(first, first + dropped);
  session_.keep(settings_.keep);
  read_ = static_cast<size_t>(settings_.keep);
  prompt_ = text_.size();
  ++done_.shifts;
}

std::string Generation::choose(std::span<const float> scores) {
  expect_finite(scores, fmt::format("token {} cannot be chosen", done_.tokens + 1));
  sampler_.forbid(done_.tokens < settings_.least ? std::span<const int32_t>(settings_.ends)
                                                 : std::span<const int32_t>());
  const bool drawn = verified_ < drafted_.size() && settings_.temperature > 0 && !drafted_[verified_].chances.empty();
  const int32_t id = drawn ? sampler_.accept(scores, drafted_[verified_].id, drafted_[verified_].chances)
                           : sampler_.choose(scores, constraint_ ? &*constraint_ : nullptr);
  sampler_.observe(id);
  text_.push_back(id);
  ++done_.tokens;
  if (settings_.log_probabilities) {
    done_.chosen.push_back(scored_token(scores, id, *settings_.log_probabilities));
    begins_.push_back(added_);
  }
  if (std::find(settings_.ends.begin(), settings_.ends.end(), id) != settings_.ends.end())
    return finish(EndOfText::model);
  if (constraint_) constraint_->accept(id);
  std::string text = add_text(characters_.push(text_of(id)));
  previous_ = id;
  if (stop_.found() || (constraint_ && constraint_->is_over())) return text + finish(EndOfText::stop);
  if (done_.tokens == settings_.tokens) return text + finish(EndOfText::tokens);
  if (length() < session_.context()) return text;
  if (settings_.overflow == Overflow::stop) return text + finish(EndOfText::context);
  shift();
  return text;
}

// Returns the text of the token after the previous one.
std::string Generation::text_of(int32_t id) const {
  const bool written = std::find(settings_.written.begin(), settings_.written.end(), id) != settings_.written.end();
  std::string text = written ? tokenizer_.written(id) : tokenizer_.decode(id, previous_);
  return text.empty() && settings_.all_written ? tokenizer_.written(id) : text;
}

std::string Generation::finish(EndOfText end) {
  drop_drafts();
  over_ = true;
  done_.end = end;
  std::string text = add_text(characters_.finish());
  return text += returned(stop_.finish());
}

std::string Generation::add_text(const std::string& more) {
  added_ += more.size();
  return returned(stop_.push(more));
}

// Counts the bytes that are returned, and the tokens that begin before their end.
std::string Generation::returned(std::string text) {
  returned_ += text.size();
  while (done_.shown < begins_.size() && begins_[done_.shown] < returned_) ++done_.shown;
  return text;
}

Continuation continue_tokens(Session& session, const Tokenizer& tokenizer, std::vector<int32_t> ids,
                             const ContinuationSettings& settings, const std::function<void(const std::string&)>& emit,
                             const std::function<void(const Generation&)>& ended) {
  Generation text(session, tokenizer, std::move(ids), settings);
  while (!text.is_over())
    if (const std::string more = text.step(INT64_MAX); !more.empty()) emit(more);
  if (ended) ended(text);
  return text.done();
}

Continuation continue_text(Session& session, const Tokenizer& tokenizer, std::string_view prompt,
                           const ContinuationSettings& settings, const std::function<void(const std::string&)>& emit) {
  EncodeOptions options;
  options.begin = session.length() == 0;
  const std::vector<int32_t> ids = tokenizer.encode(prompt, options);
  const auto count = static_cast<int64_t>(ids.size()), room = session.context() - session.length();
  if (count > room)
    throw Error(ErrorKind::Usage,
                fmt::format("the prompt has {}, but the context has room for {} of {}", quantity(count, "token"), room,
                            session.context()),
                {}, {"shorten the prompt, or give a larger --context"});
  std::vector<int32_t> all(session.tokens().begin(), session.tokens().end());
  all.insert(all.end(), ids.begin(), ids.end());
  Continuation done = continue_tokens(session, tokenizer, ids.empty() ? ids : all, settings, emit);
  done.prompt_tokens = count;
  return done;
}

}  // namespace harmonics::engine
