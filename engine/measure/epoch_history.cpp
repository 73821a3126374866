#include "engine/measure/epoch_history.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace harmonics::engine {

namespace {

constexpr size_t kLeastEpochs = 16;  // kept regardless of the number of figures

size_t figures_of(const EpochReport& e) {
  size_t n = 1 + e.figures.size();
  if (e.validation)
    for (const LayerFigures& layer : e.validation->layers) n += 1 + layer.figures.size();
  return n;
}

}  // namespace

const EpochReport* best_of(const std::vector<EpochReport>& epochs) {
  const auto is_smaller = [](double loss, double than) {
    return loss < than || (std::isnan(than) && !std::isnan(loss));
  };
  const EpochReport* best = nullptr;
  for (const EpochReport& epoch : epochs)
    if (epoch.validation && (!best || is_smaller(epoch.validation->loss, best->validation->loss))) best = &epoch;
  return best;
}

EpochReport& EpochHistory::add(EpochReport epoch) {
  // The last two elements are the latest epochs. The older of them is kept only if the stride selects it.
  if (kept_.size() >= 2 && (closed_ - 2) % stride_ != 0 && &*(kept_.end() - 2) != best_of(kept_))
    kept_.erase(kept_.end() - 2);
  while (full()) halve();
  ++closed_;
  return kept_.emplace_back(std::move(epoch));
}

void EpochHistory::restore(std::vector<EpochReport> kept, int64_t closed, int64_t stride) {
  kept_ = std::move(kept);
  closed_ = closed;
  stride_ = stride;
  while (full()) halve();
}

// Assumes that all epochs have about as many figures as the last.
bool EpochHistory::full() const {
  const size_t n = kept_.size();
  return n >= kEpochs || (n > kLeastEpochs && n * figures_of(kept_.back()) > kFigures);
}

void EpochHistory::halve() {
  const EpochReport* const best = best_of(kept_);
  const size_t last = kept_.size() - 1, of_best = best ? static_cast<size_t>(best - kept_.data()) : last;
  size_t to = 0;
  for (size_t i = 0; i <= last; ++i)
    if (i % 2 == 0 || i + 2 > last || i == of_best) {
      if (to != i) kept_[to] = std::move(kept_[i]);
      ++to;
    }
  kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(to), kept_.end());
  stride_ *= 2;
}

}  // namespace harmonics::engine
