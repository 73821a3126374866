// Perplexity in runs of several tokens is that of one token at a time.
#include <catch2/catch.hpp>

#include <cmath>
#include <utility>
#include <vector>

#include "engine/language/perplexity.hpp"
#include "engine/language/sampler.hpp"
#include "tests/engine/language/small_language.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("perplexity: runs of several tokens give what single tokens give, in windows of the context") {
  SmallLanguage small, other;
  const std::vector<std::pair<int64_t, int64_t>> sizes = {{150, 400}, {150, 70}, {141, 70}, {2, 70}};
  for (const auto& [length, context] : sizes) {
    INFO(length << " tokens in windows of " << context);
    const std::vector<int32_t> ids = some_tokens(length, small.tokenizer->size());
    Session single(other.decoder, context), many(small.decoder, context);
    double surprise = 0;
    int64_t measured = 0;
    std::span<const float> scores;
    for (const int32_t& id : ids) {
      if (single.length() == context) single.keep(0);
      if (single.length() > 0) {
        surprise -= log_probability(scores, id);
        ++measured;
      }
      scores = single.append({&id, 1});
    }
    const Perplexity found = perplexity_of(many, ids);
    CHECK(found.tokens == measured);
    CHECK(found.value == std::exp(surprise / static_cast<double>(measured)));
  }
}

TEST_CASE("perplexity: a text of one token has none") {
  SmallLanguage small;
  Session session(small.decoder);
  const std::vector<int32_t> ids = {1};
  CHECK(perplexity_of(session, ids).tokens == 0);
  CHECK(perplexity_of(session, {}).tokens == 0);
}
