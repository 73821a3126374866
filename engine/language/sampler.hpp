// Sampler: chooses tokens by their scores.
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

// Returns an index drawn from softmax(scores / temperature). Equal settings and equal `draw`, the number of the draw,
// give equal results. Scores must be finite. Temperature 0 returns the first of the best scores.
int32_t sample(std::span<const float> scores, const SamplerSettings& settings, uint64_t draw);

// Filters of the tokens to draw from, in the order of application. The defaults keep all tokens.
struct FilterSettings {
  double repeat_penalty = 1;     // divides positive scores of recent tokens and multiplies others (Keskar et al. 2019)
  double presence_penalty = 0;   // subtracted from the scores of recent tokens
  double frequency_penalty = 0;  // likewise, once per occurrence
  int64_t recent = 64;           // number of recent tokens to which penalties apply
  int64_t top_k = 0;             // keep this number of most likely tokens; 0: all
  double typical = 1;            // keep tokens nearest the mean surprise, up to this probability (Meister et al. 2022)
  double top_p = 1;              // keep the most likely tokens, up to this probability (Holtzman et al. 2020)
  double min_p = 0;              // drop tokens below this share of the best token's probability

  // Scores of tokens that would continue a repetition of at least `dry_length` tokens are reduced by dry_multiplier ·
  // dry_base^(length of the repetition - dry_length); 0 disables this (the DRY sampler). Repetitions do not extend
  // across `dry_breakers`.
  double dry_multiplier = 0, dry_base = 1.75;
  int64_t dry_length = 2;
  std::vector<int32_t> dry_breakers = {};

  // 1 or 2: replaces the filters from top_k on; keeps the mean surprise of the text, in bits, at mirostat_surprise
  // (Basu et al. 2021).
  int mirostat = 0;
  double mirostat_surprise = 5, mirostat_rate = 0.1;

  std::vector<std::pair<int32_t, float>> bias = {};  // added to the scores of these tokens
};

// A token and the logarithm of its softmax(scores).
struct TokenProbability {
  int32_t id;
  double log_probability;
};
double log_probability(std::span<const float> scores, int32_t id);
// Returns the `count` most likely tokens, the best first.
std::vector<TokenProbability> most_likely(std::span<const float> scores, size_t count);

// A token of a text, with the most likely ones at its position.
struct ScoredToken {
  int32_t id;
  double log_probability;
  int64_t rank;  // 1: the most likely token
  std::vector<TokenProbability> best;
};
ScoredToken scored_token(std::span<const float> scores, int32_t id, size_t best);

// A token and its probability of being drawn.
struct TokenChance {
  int32_t id;
  double probability;
};

// State of a sampler besides the observed tokens.
struct SamplerState {
  uint64_t draws = 0;
  double surprise = 0;  // for mirostat
};

// Chooses the tokens of one sequence. Does not allocate per token.
class Sampler {
 public:
  Sampler(const SamplerSettings& settings, const FilterSettings& filters, int64_t vocabulary);
  // Must be called for each token of the sequence, including the prompt.
  void observe(int32_t id);
  // Excludes tokens from the next choices, until it is called again. They must be tokens of the vocabulary.
  void forbid(std::span<const int32_t> ids);
  // Draws a token; draws are numbered from 0. Scores must be finite. With a constraint, draws among the tokens that it
  // allows; throws ErrorKind::Usage if it allows none.
  int32_t choose(std::span<const float> scores, const TokenConstraint* constraint = nullptr);

  // Returns the distribution from which choose() draws without a constraint; its sum is 1. Not for mirostat.
  std::vector<TokenChance> chances(std::span<const float> scores);
  int32_t draw(std::span<const TokenChance> chances);
  // Accepts `drafted`, which was drawn from `from`, or draws another token, so that the result has the distribution
  // chances(scores) (acceptance rule of Leviathan et al. 2023).
  int32_t accept(std::span<const float> scores, int32_t drafted, std::span<const TokenChance> from);
  // Returns a sampler with the same settings and other random numbers, whose next draw has the number `draw`.
  Sampler for_drafts(uint64_t draw) const;

  const SamplerSettings& settings() const { return settings_; }
  const FilterSettings& filters() const { return filters_; }
  SamplerState state() const { return {draws_, surprise_}; }
  // Continues from this state. The tokens must be observed too.
  void resume(const SamplerState& state) { draws_ = state.draws, surprise_ = state.surprise; }

 private:
  struct Candidate {
    int32_t id;
    float score;
    double weight = 0;  // exp(score - best score)
  };
  // Returns the scores with biases and penalties. Those of the model, if there are none.
  std::span<const float> adjusted(std::span<const float> scores);
  size_t wanted(size_t vocabulary) const;  // number of the best tokens that the filters look at
  int32_t pick(std::span<const float> scores);
  int32_t pick_kept(size_t number = 0);  // number: of the random numbers of this draw
  void filter();
  void penalise();
  void penalise_repetitions();
  void keep_allowed(std::span<const float> scores, const TokenConstraint& constraint);
  void sort_kept();
  double weigh();  // returns the sum of weights
  void keep_typical();
  void keep_probable();
  void keep_unsurprising();
  int32_t draw(size_t number);

  SamplerSettings settings_;
  FilterSettings filters_;
  uint64_t draws_ = 0;
  std::vector<int32_t> recent_;  // a ring buffer
  size_t next_ = 0;
  std::vector<int32_t> times_;  // by token: number of occurrences in recent_
  std::vector<Candidate> candidates_;
  std::vector<Candidate> allowed_;  // scratch memory of keep_allowed()
  std::vector<float> adjusted_;     // empty without biases, penalties and forbidden tokens
  std::vector<int32_t> forbidden_;
  double surprise_ = 0;           // upper limit of a candidate's bits, for mirostat
  std::vector<int32_t> history_;  // all tokens, for dry_multiplier
  std::vector<size_t> matches_;   // scratch memory of penalise_repetitions()
};

}  // namespace harmonics::engine
