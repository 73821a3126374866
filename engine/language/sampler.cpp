#include "engine/language/sampler.hpp"

#include <algorithm>
#include <cmath>

#include "engine/base/philox.hpp"

namespace harmonics::engine {

namespace {

float unit_of_draw(uint64_t seed, uint64_t draw) {
  const auto word = philox({static_cast<uint32_t>(draw), static_cast<uint32_t>(draw >> 32), 0, 0},
                           philox_key(seed, stream_of("generate", 8)));
  return unit_float(word[0]);
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
}

void Sampler::observe(int32_t id) {
  if (recent_.empty()) return;
  int32_t& oldest = recent_[next_];
  if (oldest >= 0) --times_[static_cast<size_t>(oldest)];
  oldest = id;
  ++times_[static_cast<size_t>(id)];
  next_ = (next_ + 1) % recent_.size();
}

int32_t Sampler::choose(std::span<const float> scores) {
  candidates_.clear();
  for (size_t i = 0; i < scores.size(); ++i) candidates_.push_back({static_cast<int32_t>(i), scores[i], 0});
  penalise();
  if (settings_.temperature <= 0) {
    keep_best(1);
    return candidates_.front().id;
  }
  keep_best(filters_.top_k > 0 ? static_cast<size_t>(filters_.top_k) : candidates_.size());
  if (filters_.typical < 1) keep_typical();
  keep_probable();
  return draw();
}

void Sampler::penalise() {
  const FilterSettings& f = filters_;
  if (f.repeat_penalty == 1 && f.presence_penalty == 0 && f.frequency_penalty == 0) return;
  for (Candidate& c : candidates_) {
    const int32_t times = times_[static_cast<size_t>(c.id)];
    if (times == 0) continue;
    const double score = c.score > 0 ? c.score / f.repeat_penalty : c.score * f.repeat_penalty;
    c.score = static_cast<float>(score - f.presence_penalty - f.frequency_penalty * times);
  }
}

// The best first; of equal scores the lower id.
void Sampler::keep_best(size_t count) {
  count = std::min(count, candidates_.size());
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : a.id < b.id;
  };
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(candidates_.begin(), end, candidates_.end(), better);
  candidates_.erase(end, candidates_.end());
}

double Sampler::weigh() {
  double sum = 0;
  const float best =
      std::max_element(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
        return a.score < b.score;
      })->score;
  for (Candidate& c : candidates_) sum += c.weight = std::exp(static_cast<double>(c.score) - best);
  return sum;
}

// Sorted by how far a token's surprise is from the mean; the first ones that hold the share `typical` stay.
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
  keep_best(candidates_.size());
}

// The candidates are sorted by score.
void Sampler::keep_probable() {
  const double sum = weigh();
  double held = 0;
  size_t count = 0;
  while (count < candidates_.size() && (count == 0 || held < filters_.top_p * sum) &&
         candidates_[count].weight >= filters_.min_p * candidates_.front().weight)
    held += candidates_[count++].weight;
  candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(count, 1)), candidates_.end());
}

int32_t Sampler::draw() {
  double sum = 0;
  const float best = candidates_.front().score;
  for (Candidate& c : candidates_) sum += c.weight = std::exp((c.score - best) / settings_.temperature);
  double left = unit_of_draw(settings_.seed, draws_++) * sum;
  for (const Candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0) return c.id;
  }
  return candidates_.front().id;
}

}  // namespace harmonics::engine
