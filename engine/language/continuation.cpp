#include "engine/language/continuation.hpp"

#include <chrono>
#include <cmath>

#include <fmt/core.h>

#include "engine/language/stop_texts.hpp"
#include "engine/language/whole_characters.hpp"

namespace harmonics::engine {

namespace {

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void expect_finite(std::span<const float> scores, int64_t token) {
  for (float s : scores)
    if (!std::isfinite(s))
      throw Error(ErrorKind::Diverged,
                  fmt::format("token {} cannot be chosen: its scores are infinite or NaN", token + 1), {},
                  {"the weights, or what they compute, are not finite"});
}

}  // namespace

Continuation continue_text(Session& session, const Tokenizer& tokenizer, std::string_view prompt,
                           const ContinuationSettings& settings, const std::function<void(const std::string&)>& emit) {
  Continuation done;
  EncodeOptions options;
  options.begin = session.length() == 0;
  std::vector<int32_t> ids = tokenizer.encode(prompt, options);
  if (ids.empty()) throw Error(ErrorKind::Usage, "the prompt is empty, and the tokenizer has no token to begin with");
  done.prompt_tokens = static_cast<int64_t>(ids.size());
  const int64_t room = session.context() - session.length();
  if (done.prompt_tokens > room)
    throw Error(ErrorKind::Usage,
                fmt::format("the prompt has {} tokens, and the context has room for {} of {}", done.prompt_tokens, room,
                            session.context()),
                {}, {"shorten the prompt, or give a larger --context"});
  auto begin = std::chrono::steady_clock::now();
  std::span<const float> scores = session.append(ids);
  done.prompt_seconds = since(begin);
  begin = std::chrono::steady_clock::now();
  WholeCharacters characters;
  StopTexts stop(settings.stop);
  const auto show = [&](const std::string& text) {
    if (const std::string sure = stop.push(text); !sure.empty()) emit(sure);
  };
  Sampler sampler(settings, settings.filters, static_cast<int64_t>(scores.size()));
  for (const int32_t id : ids) sampler.observe(id);
  int32_t previous = ids.back();
  done.end = EndOfText::tokens;
  while (done.tokens < settings.tokens) {
    expect_finite(scores, done.tokens);
    const int32_t id = sampler.choose(scores);
    sampler.observe(id);
    ++done.tokens;
    if (id == tokenizer.eos() || id == tokenizer.bos()) {
      done.end = EndOfText::model;
      break;
    }
    show(characters.push(tokenizer.decode(id, previous)));
    if (stop.found()) {
      done.end = EndOfText::stop;
      break;
    }
    previous = id;
    if (done.tokens == settings.tokens) break;
    if (session.length() == session.context()) {
      done.end = EndOfText::context;
      break;
    }
    scores = session.append({&id, 1});
  }
  done.seconds = since(begin);
  show(characters.finish());
  if (const std::string rest = stop.finish(); !rest.empty()) emit(rest);
  return done;
}

}  // namespace harmonics::engine
