#include "engine/language/continuation.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

using TextClock = std::chrono::steady_clock;

double since(TextClock::time_point begin) { return std::chrono::duration<double>(TextClock::now() - begin).count(); }

void expect_finite(std::span<const float> scores, int64_t token) {
  for (float s : scores)
    if (!std::isfinite(s))
      throw Error(ErrorKind::Diverged,
                  fmt::format("token {} cannot be chosen: its scores are infinite or NaN", token + 1), {},
                  {"the weights, or what they compute, are not finite"});
}

// Adds the settings that follow from the vocabulary.
ContinuationSettings completed(const Tokenizer& tokenizer, ContinuationSettings settings) {
  for (const std::optional<int32_t> end : {tokenizer.eos(), tokenizer.bos()})
    if (end) settings.ends.push_back(*end);
  if (settings.grammar && !settings.pieces) settings.pieces = token_texts(tokenizer);
  return settings;
}

}  // namespace

std::vector<int32_t> answer_ends(const Tokenizer& tokenizer) {
  constexpr const char* kEnds[] = {"<|im_end|>",     "<|eot_id|>", "<|eom_id|>",      "<|end_of_text|>",
                                   "<|endoftext|>",  "<|end|>",    "<end_of_turn>",   "<|end_of_role|>",
                                   "<|return|>",     "<|call|>",   "<|end_of_turn|>", "<｜end▁of▁sentence｜>",
                                   "<|endofprompt|>"};
  std::vector<int32_t> ids;
  for (const char* end : kEnds)
    if (const auto id = tokenizer.special_token(end)) ids.push_back(*id);
  return ids;
}

Generation::Generation(Session& session, const Tokenizer& tokenizer, std::vector<int32_t> ids,
                       const ContinuationSettings& settings)
    : session_(session),
      tokenizer_(tokenizer),
      settings_(completed(tokenizer, settings)),
      ids_(std::move(ids)),
      sampler_(settings_, settings_.filters, tokenizer.size()),
      stop_(settings_.stop) {
  if (ids_.empty()) throw Error(ErrorKind::Usage, "the prompt is empty, and the tokenizer has no token to begin with");
  done_.prompt_tokens = static_cast<int64_t>(ids_.size());
  if (done_.prompt_tokens > session.context())
    throw Error(
        ErrorKind::Usage,
        fmt::format("the prompt has {} tokens, and the context holds {}", done_.prompt_tokens, session.context()), {},
        {"shorten the prompt, or give a larger --context"});
  done_.reused_tokens = session.begin(ids_);
  read_ = static_cast<size_t>(done_.reused_tokens);
  for (const int32_t id : ids_) sampler_.observe(id);
  previous_ = ids_.back();
  if (settings_.grammar) constraint_.emplace(settings_.grammar, settings_.pieces, settings_.ends);
}

std::string Generation::step(int64_t chunk) {
  if (over_) return "";
  const auto begin = TextClock::now();
  const std::span<const int32_t> tokens = wanted(chunk);
  const std::span<const float> scores = session_.append(tokens);
  return take(tokens.size(), scores, since(begin));
}

std::span<const int32_t> Generation::wanted(int64_t chunk) const {
  if (!in_prompt()) return {&previous_, 1};
  const size_t most = static_cast<size_t>(std::max<int64_t>(chunk, 1));
  return std::span(ids_).subspan(read_, std::min(ids_.size() - read_, most));
}

std::string Generation::take(size_t appended, std::span<const float> scores, double seconds) {
  (in_prompt() ? done_.prompt_seconds : done_.seconds) += seconds;
  if (in_prompt()) read_ += appended;
  if (in_prompt()) return "";
  const auto begin = TextClock::now();
  std::string text = choose(scores);
  done_.seconds += since(begin);
  return text;
}

std::string Generation::choose(std::span<const float> scores) {
  expect_finite(scores, done_.tokens);
  const int32_t id = sampler_.choose(scores, constraint_ ? &*constraint_ : nullptr);
  sampler_.observe(id);
  ++done_.tokens;
  if (settings_.log_probabilities)
    done_.chosen.push_back({id, log_probability(scores, id), most_likely(scores, *settings_.log_probabilities)});
  if (std::find(settings_.ends.begin(), settings_.ends.end(), id) != settings_.ends.end())
    return finish(EndOfText::model);
  if (constraint_) constraint_->accept(id);
  std::string text = stop_.push(characters_.push(tokenizer_.decode(id, previous_)));
  previous_ = id;
  if (stop_.found() || (constraint_ && constraint_->is_over())) return text + finish(EndOfText::stop);
  if (done_.tokens == settings_.tokens) return text + finish(EndOfText::tokens);
  if (session_.length() == session_.context()) return text + finish(EndOfText::context);
  return text;
}

std::string Generation::finish(EndOfText end) {
  over_ = true;
  done_.end = end;
  std::string text = stop_.push(characters_.finish());
  return text += stop_.finish();
}

Continuation continue_text(Session& session, const Tokenizer& tokenizer, std::string_view prompt,
                           const ContinuationSettings& settings, const std::function<void(const std::string&)>& emit) {
  EncodeOptions options;
  options.begin = session.length() == 0;
  const std::vector<int32_t> ids = tokenizer.encode(prompt, options);
  const auto count = static_cast<int64_t>(ids.size()), room = session.context() - session.length();
  if (count > room)
    throw Error(
        ErrorKind::Usage,
        fmt::format("the prompt has {} tokens, and the context has room for {} of {}", count, room, session.context()),
        {}, {"shorten the prompt, or give a larger --context"});
  std::vector<int32_t> all(session.tokens().begin(), session.tokens().end());
  all.insert(all.end(), ids.begin(), ids.end());
  Generation text(session, tokenizer, ids.empty() ? ids : all, settings);
  while (!text.is_over())
    if (const std::string more = text.step(INT64_MAX); !more.empty()) emit(more);
  Continuation done = text.done();
  done.prompt_tokens = count;
  return done;
}

}  // namespace harmonics::engine
