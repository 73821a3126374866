// Chooses tokens from their scores.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace harmonics::engine {

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
};

// The choices for one sequence. Allocates when it is made, not for each token.
class Sampler {
 public:
  Sampler(const SamplerSettings& settings, const FilterSettings& filters, int64_t vocabulary);
  // The next token of the sequence, of its prompt too.
  void observe(int32_t id);
  // Draws; the number of the draw counts from 0. Scores must be finite.
  int32_t choose(std::span<const float> scores);

 private:
  struct Candidate {
    int32_t id;
    float score;
    double weight;  // softmax of the scores, not divided by its sum
  };
  void penalise();
  void keep_best(size_t count);
  double weigh();  // returns the sum
  void keep_typical();
  void keep_probable();
  int32_t draw();

  SamplerSettings settings_;
  FilterSettings filters_;
  uint64_t draws_ = 0;
  std::vector<int32_t> recent_;  // a ring
  size_t next_ = 0;
  std::vector<int32_t> times_;  // by token: how often it is in recent_
  std::vector<Candidate> candidates_;
};

}  // namespace harmonics::engine
