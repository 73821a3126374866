// Chooses tokens from their scores.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace harmonics::engine {

class TokenConstraint;

struct SamplerSettings {
  double temperature = 0.8;  // 0: always the most likely token
  uint64_t seed = 0;
};

// Returns the index drawn from softmax(scores / temperature); equal settings and `draw`, the number of the draw, give
// the same index. Scores must be finite. Of equal best scores, temperature 0 takes the first.
int32_t sample(std::span<const float> scores, const SamplerSettings& settings, uint64_t draw);

// Which tokens are drawn from, in the order in which the settings apply. The defaults leave all.
struct FilterSettings {
  double repeat_penalty = 1;     // divides positive scores of recent tokens, multiplies others (Keskar et al. 2019)
  double presence_penalty = 0;   // is subtracted from the scores of recent tokens
  double frequency_penalty = 0;  // likewise, for each time that a token is among them
  int64_t recent = 64;           // tokens that the penalties look back at
  int64_t top_k = 0;             // the most likely ones; 0: all
  double typical = 1;            // probability of the tokens nearest to the mean surprise (Meister et al. 2022)
  double top_p = 1;              // probability of the most likely ones (Holtzman et al. 2020)
  double min_p = 0;              // least share of the best token's probability

  // Tokens that would continue a repetition of at least `dry_length` tokens lose dry_multiplier · dry_base^(length of
  // the repetition - dry_length); 0: none (the DRY sampler). A repetition does not reach over `dry_breakers`.
  double dry_multiplier = 0, dry_base = 1.75;
  int64_t dry_length = 2;
  std::vector<int32_t> dry_breakers = {};

  // 1 or 2: instead of the filters from top_k on, keeps the mean surprise of the text, in bits, at mirostat_surprise
  // (Basu et al. 2021).
  int mirostat = 0;
  double mirostat_surprise = 5, mirostat_rate = 0.1;

  std::vector<std::pair<int32_t, float>> bias = {};  // is added to the scores of these tokens
};

// Logarithms of softmax(scores).
struct TokenProbability {
  int32_t id;
  double log_probability;
};
double log_probability(std::span<const float> scores, int32_t id);
// The `count` most likely ones, the best first.
std::vector<TokenProbability> most_likely(std::span<const float> scores, size_t count);

// A token that may be drawn.
struct TokenChance {
  int32_t id;
  double probability;
};

// What the choices so far leave behind, beside the tokens.
struct SamplerState {
  uint64_t draws = 0;
  double surprise = 0;  // for mirostat
};

// The choices for one sequence. Allocates when it is made, not for each token.
class Sampler {
 public:
  Sampler(const SamplerSettings& settings, const FilterSettings& filters, int64_t vocabulary);
  // The next token of the sequence, of its prompt too.
  void observe(int32_t id);
  // Draws; the number of the draw counts from 0. Scores must be finite. With a constraint, among the tokens that it
  // allows; throws ErrorKind::Usage if there is none.
  int32_t choose(std::span<const float> scores, const TokenConstraint* constraint = nullptr);

  // The distribution that choose() draws from without a constraint; its sum is 1. Not for mirostat.
  std::vector<TokenChance> chances(std::span<const float> scores);
  int32_t draw(std::span<const TokenChance> chances);
  // Takes `drafted`, which was drawn from `from`, or draws another token, so that the result has the distribution
  // chances(scores) (the rule of acceptance of Leviathan et al. 2023).
  int32_t accept(std::span<const float> scores, int32_t drafted, std::span<const TokenChance> from);
  // The same choices from other random numbers, the first of which has the number `draw`.
  Sampler for_drafts(uint64_t draw) const;

  const SamplerSettings& settings() const { return settings_; }
  const FilterSettings& filters() const { return filters_; }
  SamplerState state() const { return {draws_, surprise_}; }
  // Goes on as the sampler that had this state; the tokens must be observed too.
  void resume(const SamplerState& state) { draws_ = state.draws, surprise_ = state.surprise; }

 private:
  struct Candidate {
    int32_t id;
    float score;
    double weight;  // softmax of the scores, not divided by its sum
  };
  void load(std::span<const float> scores);
  int32_t pick();
  void filter();
  void penalise();
  void penalise_repetitions();
  void keep_allowed(const TokenConstraint& constraint);
  void keep_best(size_t count);
  double weigh();  // returns the sum
  void keep_typical();
  void keep_probable();
  void keep_unsurprising();
  int32_t draw();

  SamplerSettings settings_;
  FilterSettings filters_;
  uint64_t draws_ = 0;
  std::vector<int32_t> recent_;  // a ring
  size_t next_ = 0;
  std::vector<int32_t> times_;  // by token: how often it is in recent_
  std::vector<Candidate> candidates_;
  double surprise_ = 0;           // most bits of a candidate, for mirostat
  std::vector<int32_t> history_;  // all tokens, for dry_multiplier
  std::vector<size_t> matches_;   // work space of penalise_repetitions()
};

}  // namespace harmonics::engine
