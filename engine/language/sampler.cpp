#include "engine/language/sampler.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/base/philox.hpp"
#include "engine/language/best_scores.hpp"
#include "engine/language/token_constraint.hpp"

namespace harmonics::engine {

namespace {

// Returns one of several independent numbers of a draw.
float unit_of_draw(uint64_t seed, uint64_t draw, size_t number = 0) {
  const auto word = philox({static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32), 0, 0},
                           philox_key(seed, stream_of("generate", 8)));
  return unit_float(word[number]);
}

}  // namespace

int32_t sample(std::span<const float> scores, const SamplerSettings& settings, uint64_t draw) {
  const auto best = static_cast<size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  if (settings.temperature <= 0) return static_cast<int32_t>(best);
  const auto weight = [&](float score) { return std::exp((score - scores[best]) / settings.temperature); };
  double sum = 0;
  for (float score : scores) sum += weight(score);
  double left = unit_of_draw(settings.seed, draw) * sum;
  for (size_t i = 0; i < scores.size(); ++i) {
    left -= weight(scores[i]);
    if (left < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best);
}

Sampler::Sampler(const SamplerSettings& settings, const FilterSettings& filters, int64_t vocabulary)
    : settings_(settings), filters_(filters), times_(static_cast<size_t>(vocabulary)) {
  recent_.assign(static_cast<size_t>(std::max<int64_t>(filters.recent, 0)), -1);
  candidates_.reserve(static_cast<size_t>(vocabulary));
  surprise_ = 2 * filters.mirostat_surprise;
  const bool penalises = filters.repeat_penalty != 1 || filters.presence_penalty != 0 || filters.frequency_penalty != 0;
  if (penalises || filters.dry_multiplier > 0 || !filters.bias.empty())
    adjusted_.resize(static_cast<size_t>(vocabulary));
  for (const auto& [id, bias] : filters.bias)
    if (id < 0 || id >= vocabulary)
      throw Error(ErrorKind::Usage,
                  fmt::format("the token {} of a bias is outside the vocabulary of {}", id, vocabulary));
}

void Sampler::observe(int32_t id) {
  if (filters_.dry_multiplier > 0) history_.push_back(id);
  if (recent_.empty()) return;
  int32_t& oldest = recent_[next_];
  if (oldest >= 0) --times_[static_cast<size_t>(oldest)];
  oldest = id;
  ++times_[static_cast<size_t>(id)];
  next_ = (next_ + 1) % recent_.size();
}

int32_t Sampler::choose(std::span<const float> scores, const TokenConstraint* constraint) {
  const std::span<const float> all = adjusted(scores);
  if (!constraint) return pick(all);
  // The first choice is usually allowed, so that no other token has to be checked. Otherwise choosing again among the
  // allowed tokens, by another random number, gives them their probabilities: the first number is known to belong to a
  // token that is not allowed.
  const uint64_t draws = draws_;
  const double surprise = surprise_;
  if (const int32_t id = pick(all); constraint->allows(id)) return id;
  draws_ = draws;
  surprise_ = surprise;
  keep_allowed(all, *constraint);
  return pick_kept(1);
}

std::span<const float> Sampler::adjusted(std::span<const float> scores) {
  if (adjusted_.empty()) return scores;
  std::ranges::copy(scores, adjusted_.begin());
  for (const auto& [id, bias] : filters_.bias) adjusted_[static_cast<size_t>(id)] += bias;
  penalise();
  if (filters_.dry_multiplier > 0) penalise_repetitions();
  constexpr float kNever = -1e30f;  // finite, as filters compute with it
  for (const int32_t id : forbidden_) adjusted_[static_cast<size_t>(id)] = kNever;
  return adjusted_;
}

void Sampler::forbid(std::span<const int32_t> ids) {
  forbidden_.assign(ids.begin(), ids.end());
  if (!ids.empty()) adjusted_.resize(times_.size());
}

size_t Sampler::wanted(size_t vocabulary) const {
  if (settings_.temperature <= 0) return 1;
  return filters_.mirostat == 0 && filters_.top_k > 0 ? static_cast<size_t>(filters_.top_k) : vocabulary;
}

int32_t Sampler::pick(std::span<const float> scores) {
  take_best(scores, wanted(scores.size()), candidates_);
  return pick_kept();
}

// Requires the wanted candidates, sorted.
int32_t Sampler::pick_kept(size_t number) {
  if (settings_.temperature <= 0) return candidates_.front().id;
  if (filters_.mirostat > 0)
    keep_unsurprising();
  else
    filter();
  return draw(number);
}

void Sampler::filter() {
  if (filters_.typical < 1) keep_typical();
  keep_probable();
}

std::vector<TokenChance> Sampler::chances(std::span<const float> scores) {
  take_best(adjusted(scores), wanted(scores.size()), candidates_);
  if (settings_.temperature <= 0) return {{candidates_.front().id, 1.0}};
  filter();
  double sum = 0;
  const float best = candidates_.front().score;
  for (Candidate& c : candidates_) sum += c.weight = std::exp((c.score - best) / settings_.temperature);
  std::vector<TokenChance> all;
  for (const Candidate& c : candidates_) all.push_back({c.id, c.weight / sum});
  return all;
}

int32_t Sampler::draw(std::span<const TokenChance> chances) {
  double sum = 0;
  for (const TokenChance& c : chances) sum += c.probability;
  double left = unit_of_draw(settings_.seed, draws_++) * sum;
  for (const TokenChance& c : chances) {
    left -= c.probability;
    if (left < 0) return c.id;
  }
  return chances.front().id;
}

int32_t Sampler::accept(std::span<const float> scores, int32_t drafted, std::span<const TokenChance> from) {
  std::vector<TokenChance> wanted = chances(scores);
  const auto of = [](std::span<const TokenChance> all, int32_t id) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const TokenChance& c) { return c.id == id; });
    return at == all.end() ? 0.0 : at->probability;
  };
  if (unit_of_draw(settings_.seed, draws_++) * of(from, drafted) < of(wanted, drafted)) return drafted;
  std::vector<double> given(static_cast<size_t>(times_.size()), 0.0);
  for (const TokenChance& c : from) given[static_cast<size_t>(c.id)] = c.probability;
  std::vector<TokenChance> rest = wanted;
  std::erase_if(rest, [&](TokenChance& c) { return (c.probability -= given[static_cast<size_t>(c.id)]) <= 0; });
  return draw(rest.empty() ? wanted : rest);
}

Sampler Sampler::for_drafts(uint64_t draw) const {
  Sampler other = *this;
  other.draws_ = (uint64_t{1} << 63) | draw;
  return other;
}

// Sorts ever more tokens until as many as wanted are allowed.
void Sampler::keep_allowed(std::span<const float> scores, const TokenConstraint& constraint) {
  constexpr size_t kFirst = 256, kFactor = 16;
  const size_t most = wanted(scores.size());
  allowed_.clear();
  size_t checked = 0;
  for (size_t count = std::max(kFirst, most); checked < scores.size() && allowed_.size() < most; count *= kFactor) {
    take_best(scores, count, candidates_);
    for (; checked < candidates_.size() && allowed_.size() < most; ++checked)
      if (constraint.allows(candidates_[checked].id)) allowed_.push_back(candidates_[checked]);
  }
  candidates_ = allowed_;
  if (candidates_.empty())
    throw Error(ErrorKind::Usage, "no token of the model continues the text as the grammar says");
}

void Sampler::penalise() {
  const FilterSettings& f = filters_;
  if (f.repeat_penalty == 1 && f.presence_penalty == 0 && f.frequency_penalty == 0) return;
  for (size_t id = 0; id < times_.size(); ++id) {
    const int32_t times = times_[id];
    if (times == 0) continue;
    float& of = adjusted_[id];
    const double score = of > 0 ? of / f.repeat_penalty : of * f.repeat_penalty;
    of = static_cast<float>(score - f.presence_penalty - f.frequency_penalty * times);
  }
}

// With positions counted from the end, matches_[i] is the length of the longest run of tokens that ends at position i
// and also ends the history; the token at i - 1 would continue the repetition. Computed by the Z function of the
// reversed history in linear time.
void Sampler::penalise_repetitions() {
  const size_t size = history_.size();
  const auto back = [&](size_t i) { return history_[size - 1 - i]; };
  size_t most = 0;  // tokens after the last breaker
  const auto& breakers = filters_.dry_breakers;
  while (most < size && std::find(breakers.begin(), breakers.end(), back(most)) == breakers.end()) ++most;
  matches_.assign(size, 0);
  for (size_t i = 1, left = 0, right = 0; i < size; ++i) {
    size_t length = i < right ? std::min(right - i, matches_[i - left]) : 0;
    while (i + length < size && back(length) == back(i + length)) ++length;
    matches_[i] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
  }
  const auto least = static_cast<size_t>(std::max<int64_t>(filters_.dry_length, 1));
  std::vector<std::pair<int32_t, size_t>> longest;  // by token: length of the repetition
  for (size_t i = 1; i < size; ++i) {
    const size_t length = std::min(matches_[i], most);
    if (length >= least) longest.emplace_back(back(i - 1), length);
  }
  std::sort(longest.begin(), longest.end());
  for (size_t i = 0; i < longest.size(); ++i) {
    if (i + 1 < longest.size() && longest[i + 1].first == longest[i].first) continue;
    const double power = std::min(static_cast<double>(longest[i].second - least), 300.0);
    const double penalty = filters_.dry_multiplier * std::pow(filters_.dry_base, power);
    adjusted_[static_cast<size_t>(longest[i].first)] -= static_cast<float>(std::min(penalty, 1e30));
  }
}

void Sampler::sort_kept() { std::sort(candidates_.begin(), candidates_.end(), is_better<Candidate>); }

double Sampler::weigh() {
  double sum = 0;
  const float best =
      std::max_element(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
        return a.score < b.score;
      })->score;
  for (Candidate& c : candidates_) sum += c.weight = std::exp(static_cast<double>(c.score) - best);
  return sum;
}

// Keeps the candidates whose surprise is closest to the mean, up to the probability `typical`.
void Sampler::keep_typical() {
  const double sum = weigh();
  double mean = 0;
  for (const Candidate& c : candidates_)
    if (c.weight > 0) mean -= c.weight / sum * std::log(c.weight / sum);
  const auto distance = [&](const Candidate& c) {
    return c.weight > 0 ? std::abs(-std::log(c.weight / sum) - mean) : HUGE_VAL;
  };
  std::sort(candidates_.begin(), candidates_.end(), [&](const Candidate& a, const Candidate& b) {
    const double x = distance(a), y = distance(b);
    return x != y ? x < y : a.id < b.id;
  });
  double held = 0;
  size_t count = 0;
  while (count < candidates_.size() && held < filters_.typical * sum) held += candidates_[count++].weight;
  candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(count, 1)), candidates_.end());
  sort_kept();
}

// Requires candidates sorted by score.
void Sampler::keep_probable() {
  const double sum = weigh();
  double held = 0;
  size_t count = 0;
  while (count < candidates_.size() && (count == 0 || held < filters_.top_p * sum) &&
         candidates_[count].weight >= filters_.min_p * candidates_.front().weight)
    held += candidates_[count++].weight;
  candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(count, 1)), candidates_.end());
}

void Sampler::keep_unsurprising() {
  if (settings_.temperature != 1)
    for (Candidate& c : candidates_) c.score = static_cast<float>(c.score / settings_.temperature);
  const double sum = weigh();
  size_t count = 1;
  if (filters_.mirostat == 1) {
    // Estimates the exponent of Zipf's law from the hundred best tokens, and how many tokens it takes to reach the
    // wanted surprise.
    double products = 0, squares = 0;
    for (size_t i = 0; i + 1 < std::min<size_t>(candidates_.size(), 100); ++i) {
      if (candidates_[i + 1].weight <= 0) break;
      const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
      products += t * std::log(candidates_[i].weight / candidates_[i + 1].weight);
      squares += t * t;
    }
    const double exponent = squares > 0 ? products / squares : 1, over = exponent - 1;
    const double size = static_cast<double>(candidates_.size());
    const double k = std::pow(over * std::exp2(surprise_) / (1 - std::pow(size, -over)), 1 / exponent);
    count = std::isfinite(k) ? static_cast<size_t>(std::clamp(k, 1.0, size)) : candidates_.size();
  } else {
    while (count < candidates_.size() && -std::log2(candidates_[count].weight / sum) <= surprise_) ++count;
  }
  candidates_.resize(count, Candidate{0, 0, 0});
}

int32_t Sampler::draw(size_t number) {
  if (filters_.mirostat > 0) {
    const double sum = weigh();
    double left = unit_of_draw(settings_.seed, draws_++, number) * sum;
    size_t chosen = 0;
    for (; chosen + 1 < candidates_.size(); ++chosen)
      if ((left -= candidates_[chosen].weight) < 0) break;
    surprise_ -= filters_.mirostat_rate * (-std::log2(candidates_[chosen].weight / sum) - filters_.mirostat_surprise);
    return candidates_[chosen].id;
  }
  double sum = 0;
  const float best = candidates_.front().score;
  for (Candidate& c : candidates_) sum += c.weight = std::exp((c.score - best) / settings_.temperature);
  double left = unit_of_draw(settings_.seed, draws_++, number) * sum;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  return candidates_.front().id;
}

namespace {

double log_sum(std::span<const float> scores) {
  const double best = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const float score : scores) sum += std::exp(score - best);
  return best + std::log(sum);
}

std::vector<TokenProbability> best_of(std::span<const float> scores, size_t count, double sum) {
  struct Scored {
    int32_t id;
    float score;
  };
  std::vector<Scored> found;
  take_best(scores, count, found);
  std::vector<TokenProbability> best;
  for (const Scored& one : found) best.push_back({one.id, one.score - sum});
  return best;
}

}  // namespace

double log_probability(std::span<const float> scores, int32_t id) {
  return scores[static_cast<size_t>(id)] - log_sum(scores);
}

std::vector<TokenProbability> most_likely(std::span<const float> scores, size_t count) {
  return best_of(scores, count, log_sum(scores));
}

ScoredToken scored_token(std::span<const float> scores, int32_t id, size_t best) {
  const float score = scores[static_cast<size_t>(id)];
  const double sum = log_sum(scores);
  const auto better = std::ranges::count_if(scores, [&](float other) { return other > score; });
  return {id, score - sum, better + 1, best_of(scores, best, sum)};
}

}  // namespace harmonics::engine
