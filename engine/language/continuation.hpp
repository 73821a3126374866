// A session continues a text: prompt in, characters out as they are complete.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/language/decoder.hpp"
#include "engine/language/sampler.hpp"
#include "engine/language/tokenizer.hpp"

namespace harmonics::engine {

struct ContinuationSettings : SamplerSettings {
  int64_t tokens = 256;  // at most
  FilterSettings filters;
  std::vector<std::string> stop;  // texts that end the text, and are not part of it
};

enum class EndOfText {
  tokens,   // ContinuationSettings::tokens is reached
  stop,     // one of ContinuationSettings::stop
  model,    // the model chose its end of text, or began another one
  context,  // the context is full
};

struct Continuation {
  int64_t prompt_tokens = 0, tokens = 0;
  double prompt_seconds = 0, seconds = 0;
  EndOfText end = EndOfText::tokens;
};

// Appends the prompt to the session and then tokens one by one; `emit` receives the text of the tokens, not the
// prompt's, in whole UTF-8 characters. Throws ErrorKind::Usage if the prompt does not fit into the context and
// ErrorKind::Diverged if scores are not finite.
Continuation continue_text(Session& session, const Tokenizer& tokenizer, std::string_view prompt,
                           const ContinuationSettings& settings, const std::function<void(const std::string&)>& emit);

}  // namespace harmonics::engine
