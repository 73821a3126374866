#include "engine/corpus/mixture.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace harmonics::engine {

Mixture::Mixture(std::vector<uint64_t> sizes, const std::vector<double>& weights)
    : sizes_(std::move(sizes)), shares_(sizes_) {
  size_ = std::accumulate(sizes_.begin(), sizes_.end(), uint64_t{0});
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (total <= 0 || sizes_.size() < 2) return;
  const auto rows = static_cast<double>(size_);
  for (size_t i = 0; i < sizes_.size(); ++i)
    shares_[i] = std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(rows * weights[i] / total)));
  size_ = std::accumulate(shares_.begin(), shares_.end(), uint64_t{0});
  differ_ = shares_ != sizes_;
  // Row k is of the set that is furthest behind its share of the first k + 1 rows; ties go to the first set.
  std::vector<uint64_t> given(sizes_.size(), 0);
  order_.reserve(size_);
  for (uint64_t k = 0; k < size_; ++k) {
    size_t next = 0;
    double most = -1e300;
    for (size_t i = 0; i < given.size(); ++i) {
      const double behind = static_cast<double>(k + 1) * static_cast<double>(shares_[i]) / static_cast<double>(size_) -
                            static_cast<double>(given[i]);
      if (given[i] < shares_[i] && behind > most) most = behind, next = i;
    }
    order_.push_back({static_cast<uint32_t>(next), given[next]++});
  }
}

MixedRow Mixture::at(uint64_t epoch, uint64_t index) const {
  if (order_.empty()) {
    uint32_t set = 0;
    while (index >= sizes_[set]) index -= sizes_[set++];
    return {set, index};
  }
  const Place& place = order_[index];
  const uint64_t size = sizes_[place.set];
  const uint64_t before = (epoch % size) * (shares_[place.set] % size) % size;
  return {place.set, (before + place.number % size) % size};
}

}  // namespace harmonics::engine
