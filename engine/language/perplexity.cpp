#include "engine/language/perplexity.hpp"

#include <algorithm>
#include <cmath>

#include "engine/language/sampler.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kTokensOfRun = 64;  // more need more memory for scores and are hardly faster

}  // namespace

Perplexity perplexity_of(Session& session, std::span<const int32_t> ids) {
  const auto context = static_cast<size_t>(session.context());
  double surprise = 0;
  Perplexity result;
  for (size_t begin = 0; begin < ids.size(); begin += context) {
    const std::span<const int32_t> window = ids.subspan(begin, std::min(context, ids.size() - begin));
    session.keep(0);
    for (size_t at = 0; at + 1 < window.size();) {  // scores after the last token of a window predict nothing
      const size_t count = std::min(kTokensOfRun, window.size() - 1 - at);
      const std::span<const float> scores = session.append_all(window.subspan(at, count));
      const size_t width = scores.size() / count;
      for (size_t i = 0; i < count; ++i)
        surprise -= log_probability(scores.subspan(i * width, width), window[at + i + 1]);
      at += count;
      result.tokens += static_cast<int64_t>(count);
    }
  }
  if (result.tokens > 0) result.value = std::exp(surprise / static_cast<double>(result.tokens));
  return result;
}

}  // namespace harmonics::engine
