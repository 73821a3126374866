// Sampling: what each filter keeps, and stop texts.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "engine/language/best_scores.hpp"
#include "engine/language/sampler.hpp"
#include "engine/language/stop_texts.hpp"
#include "engine/language/token_constraint.hpp"

using namespace harmonics::engine;

namespace {

// Log-probabilities of 0.4, 0.3, 0.2, 0.06 and 0.04, in another order.
const std::vector<float> kScores = {std::log(0.2f), std::log(0.4f), std::log(0.04f), std::log(0.3f), std::log(0.06f)};

std::set<int32_t> drawn(const FilterSettings& filters, const std::vector<float>& scores = kScores,
                        const std::vector<int32_t>& before = {}) {
  Sampler sampler({1.0, 3}, filters, static_cast<int64_t>(scores.size()));
  for (const int32_t id : before) sampler.observe(id);
  std::set<int32_t> ids;
  for (int i = 0; i < 2000; ++i) ids.insert(sampler.choose(scores));
  return ids;
}

using Ids = std::set<int32_t>;

}  // namespace

TEST_CASE("sampler: draws in proportion to the probabilities, and a seed repeats them") {
  Sampler sampler({1.0, 5}, {}, 5), again({1.0, 5}, {}, 5), other({1.0, 6}, {}, 5);
  std::vector<int> times(5);
  bool same = true, differs = false;
  for (int i = 0; i < 20000; ++i) {
    const int32_t id = sampler.choose(kScores);
    ++times[static_cast<size_t>(id)];
    same = same && again.choose(kScores) == id;
    differs = differs || other.choose(kScores) != id;
  }
  CHECK(same);
  CHECK(differs);
  for (size_t i = 0; i < times.size(); ++i) CHECK(times[i] / 20000.0 == Approx(std::exp(kScores[i])).margin(0.015));
}

TEST_CASE("sampler: temperature 0 takes the first of the best, after the penalties") {
  const std::vector<float> scores = {1, 2, 2, -1};
  Sampler plain({0, 0}, {}, 4);
  CHECK(plain.choose(scores) == 1);
  FilterSettings filters;
  filters.repeat_penalty = 4;
  Sampler penalised({0, 0}, filters, 4);
  penalised.observe(1);
  CHECK(penalised.choose(scores) == 2);
  penalised.observe(2);
  CHECK(penalised.choose(scores) == 0);
}

TEST_CASE("sampler: filters keep the tokens that their papers say") {
  CHECK(drawn({}) == Ids{0, 1, 2, 3, 4});
  FilterSettings f;
  f.top_k = 2;
  CHECK(drawn(f) == Ids{1, 3});
  f = {};
  f.top_p = 0.65;  // reached by 0.4 + 0.3
  CHECK(drawn(f) == Ids{1, 3});
  f.top_p = 0.75;
  CHECK(drawn(f) == Ids{0, 1, 3});
  f = {};
  f.min_p = 0.45;  // threshold: 0.45 * 0.4 = 0.18
  CHECK(drawn(f) == Ids{0, 1, 3});
  f.min_p = 1;
  CHECK(drawn(f) == Ids{1});
  f = {};
  f.typical = 0.25;  // the mean surprise is 1.39 nats; 0.3 has 1.20, 0.2 has 1.61
  CHECK(drawn(f) == Ids{3});
  f.typical = 0.45;
  CHECK(drawn(f) == Ids{0, 3});
  f = {};
  f.top_k = 100;
  CHECK(drawn(f).size() == 5);
}

TEST_CASE("sampler: penalties look back at the recent tokens only") {
  FilterSettings f;
  f.top_k = 1;
  f.recent = 2;
  f.presence_penalty = 10;
  CHECK(drawn(f, kScores, {1}) == Ids{3});
  CHECK(drawn(f, kScores, {1, 3}) == Ids{0});
  CHECK(drawn(f, kScores, {1, 3, 2}) == Ids{1});  // token 1 is no longer recent
  f.presence_penalty = 0;
  f.frequency_penalty = 0.2;  // ln 0.4 - ln 0.3 is 0.288: one occurrence is not enough
  CHECK(drawn(f, kScores, {1}) == Ids{1});
  CHECK(drawn(f, kScores, {1, 1}) == Ids{3});
  f = {};
  f.top_k = 1;
  f.repeat_penalty = 2;  // negative scores are multiplied
  CHECK(drawn(f, {-1, -1.5, -3, -3, -3}, {0}) == Ids{1});
  CHECK(drawn(f, {3, 2, 1, 0, 0}, {0}) == Ids{1});
}

TEST_CASE("stop texts: found over the borders of pieces, and what may begin one is held back") {
  StopTexts stop({"</s>", "STOP", ""});
  CHECK(stop.push("one <") == "one ");
  CHECK(stop.push("b> S") == "<b> ");
  CHECK(stop.push("TO") == "");
  CHECK(stop.push("Ry ") == "STORy ");
  CHECK(stop.push("end<") == "end");
  CHECK_FALSE(stop.found());
  CHECK(stop.push("/s>more") == "");
  CHECK(stop.found());
  CHECK(stop.push("again") == "");
  CHECK(stop.finish() == "");
  StopTexts first({"b", "ab"});
  CHECK(first.push("xab") == "x");
  StopTexts none({});
  CHECK(none.push("text") == "text");
  StopTexts held({"xyz"});
  CHECK(held.push("1xy") == "1");
  CHECK(held.finish() == "xy");
}

TEST_CASE("sampler: repetitions are penalised by their length") {
  // After 1 2 3 4 1 2 3, the token 4 would continue a repetition of three tokens; 2 and 3 would continue none.
  FilterSettings filters;
  filters.dry_multiplier = 1;
  filters.dry_base = 2;
  filters.dry_length = 2;
  const auto chosen = [&](const std::vector<float>& scores) {
    Sampler sampler({0, 1}, filters, 6);
    for (const int32_t id : {1, 2, 3, 4, 1, 2, 3}) sampler.observe(id);
    return sampler.choose(scores);
  };
  CHECK(chosen({0, 0, 0, 0, 2.1f, 0}) == 4);  // the penalty is 1 * 2^(3 - 2) = 2
  CHECK(chosen({0, 0, 0, 0, 1.9f, 0}) == 0);
  filters.dry_length = 4;
  CHECK(chosen({0, 0, 0, 0, 1.9f, 0}) == 4);
  filters.dry_length = 2;
  filters.dry_breakers = {2};  // leaves one token of the repetition
  CHECK(chosen({0, 0, 0, 0, 1.9f, 0}) == 4);
}

TEST_CASE("sampler: mirostat steers the mean surprise") {
  std::vector<float> scores;
  for (int i = 0; i < 2000; ++i) scores.push_back(-std::log(static_cast<float>(i + 1)) * 1.1f);
  const auto mean = [&](int version, double wanted) {
    FilterSettings filters;
    filters.mirostat = version;
    filters.mirostat_surprise = wanted;
    Sampler sampler({1.0, 4}, filters, 2000);
    double surprise = 0;
    constexpr int kDraws = 3000;
    for (int i = 0; i < kDraws; ++i) surprise -= log_probability(scores, sampler.choose(scores)) / std::log(2.0);
    return surprise / kDraws;
  };
  for (const int version : {1, 2}) {
    INFO(version);
    const double low = mean(version, 2), high = mean(version, 5);
    CHECK(low > 1);
    CHECK(low < 4);  // over all tokens; the sampler measures it over those that it keeps
    CHECK(high > low + 1.5);
    CHECK(high < 7);
  }
}

TEST_CASE("sampler: biases are added to scores, and probabilities are those of all scores") {
  FilterSettings filters;
  filters.bias = {{2, 100.0f}, {1, -100.0f}};
  Sampler sampler({0, 1}, filters, 5);
  CHECK(sampler.choose(kScores) == 2);
  CHECK_THROWS(Sampler({0, 1}, {.bias = {{5, 1.0f}}}, 5));
  CHECK(log_probability(kScores, 1) == Approx(std::log(0.4)));
  const auto best = most_likely(kScores, 2);
  REQUIRE(best.size() == 2);
  CHECK(best[0].id == 1);
  CHECK(best[1].id == 3);
  CHECK(best[1].log_probability == Approx(std::log(0.3)));
}

TEST_CASE("sampler: the best of many scores are the first ones of all scores in order") {
  struct Scored {
    int32_t id;
    float score;
  };
  std::mt19937 random(7);
  for (const size_t size : {1u, 5u, 63u, 64u, 65u, 200u, 1000u, 4096u}) {
    CAPTURE(size);
    std::vector<float> scores(size);
    // few different values, so that equal scores occur on both sides of the border, and one below all others
    for (float& score : scores) score = static_cast<float>(random() % 40) - 20.0f;
    scores[size / 2] = -std::numeric_limits<float>::infinity();
    std::vector<Scored> all, best;
    for (size_t i = 0; i < size; ++i) all.push_back({static_cast<int32_t>(i), scores[i]});
    std::stable_sort(all.begin(), all.end(), [](const Scored& a, const Scored& b) { return a.score > b.score; });
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{40}, size / 2, size, size + 3}) {
      CAPTURE(count);
      take_best(scores, count, best);
      REQUIRE(best.size() == std::min(count, size));
      for (size_t i = 0; i < best.size(); ++i) {
        CHECK(best[i].id == all[i].id);
        CHECK(best[i].score == all[i].score);
      }
    }
  }
}

TEST_CASE("sampler: a constraint finds its tokens far behind the best ones") {
  constexpr size_t kTokens = 5000;
  std::vector<float> scores(kTokens);
  for (size_t i = 0; i < kTokens; ++i) scores[i] = -0.01f * static_cast<float>(i);
  auto pieces = std::make_shared<std::vector<std::string>>(kTokens, "a");
  pieces->at(300) = pieces->at(4600) = "z";
  const TokenConstraint constraint(std::make_shared<const Grammar>("root ::= \"z\""), pieces, {});
  Sampler greedy({0, 0}, {}, kTokens);
  CHECK(greedy.choose(scores, &constraint) == 300);
  pieces->at(300) = "b";
  CHECK(greedy.choose(scores, &constraint) == 4600);
  pieces->at(300) = "z";
  FilterSettings filters;
  filters.top_k = 2;
  filters.bias = {{4600, 43.0f}};  // as likely as 300
  Sampler sampler({1, 4}, filters, kTokens);
  std::set<int32_t> ids;
  for (int i = 0; i < 100; ++i) ids.insert(sampler.choose(scores, &constraint));
  CHECK(ids == std::set<int32_t>{300, 4600});
  pieces->at(300) = pieces->at(4600) = "b";
  CHECK_THROWS(sampler.choose(scores, &constraint));
}

TEST_CASE("sampler: a constraint gives the tokens that it allows their shares of the probability") {
  // Without a constraint 0.4, 0.3, 0.2, 0.06 and 0.04. The best token and the last one are not allowed.
  const auto pieces =
      std::make_shared<const std::vector<std::string>>(std::vector<std::string>{"z", "a", "b", "z", "z"});
  const TokenConstraint constraint(std::make_shared<const Grammar>("root ::= \"z\""), pieces, {});
  const double allowed = 0.2 + 0.3 + 0.06;
  Sampler sampler({1.0, 5}, {}, 5), again({1.0, 5}, {}, 5);
  std::vector<int> times(5);
  bool same = true;
  for (int i = 0; i < 20000; ++i) {
    const int32_t id = sampler.choose(kScores, &constraint);
    ++times[static_cast<size_t>(id)];
    same = same && again.choose(kScores, &constraint) == id;
  }
  CHECK(same);
  CHECK(sampler.state().draws == 20000);
  for (const size_t i : {0, 3, 4}) CHECK(times[i] / 20000.0 == Approx(std::exp(kScores[i]) / allowed).margin(0.015));
}
