// Perplexity: how well a model predicts a text.
#pragma once

#include <cstdint>
#include <span>

#include "engine/language/decoder.hpp"

namespace harmonics::engine {

struct Perplexity {
  int64_t tokens = 0;  // predicted ones: all except the first of each window
  double value = 0;    // exp of their mean surprise; 0 without tokens
};

// Computes the tokens in windows of the session's context, which share no tokens. Several tokens are computed in one
// run. The session ends with the last window.
Perplexity perplexity_of(Session& session, std::span<const int32_t> ids);

}  // namespace harmonics::engine
