// The best of many scores.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace harmonics::engine {

// Order of tokens: the better score first, of equal ones the lower number.
template <typename Scored>
bool is_better(const Scored& a, const Scored& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

// Whether one of 64 scores is above `limit`. Vectors, because a vocabulary has some hundred thousand scores, of which
// few are among the best.
inline bool has_above(const float* scores, float limit) {
  using Four = float __attribute__((vector_size(16)));
  using Mask = int32_t __attribute__((vector_size(16)));
  Mask above{};
  for (int i = 0; i < 64; i += 4) {
    Four four;
    std::memcpy(&four, scores + i, sizeof four);
    above |= four > limit;
  }
  return (above[0] | above[1] | above[2] | above[3]) != 0;
}

// Puts the `count` best scores into `best`, sorted by is_better(). Scored: a struct of `id`, `score` and further
// members with defaults.
template <typename Scored>
void take_best(std::span<const float> scores, size_t count, std::vector<Scored>& best) {
  count = std::min(count, scores.size());
  best.clear();
  if (count == 0) return;
  const auto at = [&](size_t i) { return Scored{static_cast<int32_t>(i), scores[i]}; };
  for (size_t i = 0; i < count; ++i) best.push_back(at(i));
  if (count < scores.size()) std::make_heap(best.begin(), best.end(), is_better<Scored>);
  // best[0] is the worst of the best. A later score replaces it only if it is above: of equal ones the earlier is kept.
  for (size_t i = count; i < scores.size();) {
    const size_t end = std::min(i + 64, scores.size());
    if (end - i == 64 && !has_above(scores.data() + i, best[0].score)) {
      i = end;
      continue;
    }
    for (; i < end; ++i) {
      if (!(scores[i] > best[0].score)) continue;
      std::pop_heap(best.begin(), best.end(), is_better<Scored>);
      best.back() = at(i);
      std::push_heap(best.begin(), best.end(), is_better<Scored>);
    }
  }
  std::sort(best.begin(), best.end(), is_better<Scored>);
}

}  // namespace harmonics::engine
