#include "engine/flow/metric_window.hpp"

#include <algorithm>
#include <numeric>

namespace harmonics::engine {

namespace {

template <typename T>
void drop(std::vector<T>& v, uint64_t first, uint64_t width) {
  v.erase(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(v.size(), first * width)));
}

}  // namespace

uint64_t MetricWindow::bytes(uint64_t samples, uint64_t rows_per_sample, uint64_t outputs, bool classes) {
  return samples * rows_per_sample * (outputs * sizeof(float) + (classes ? sizeof(int32_t) : outputs * sizeof(float)));
}

// Removes expired rows once they are at least half of the rows, so that every row is moved at most once.
void MetricWindow::make_room(uint64_t rows) {
  const uint64_t used = end_ + running_.rows;
  if ((used + rows) * outputs_ <= predictions_.capacity() || first_ == 0 || first_ < used - first_) return;
  drop(predictions_, first_, outputs_);
  if (classes_)
    drop(labels_, first_, 1);
  else
    drop(targets_, first_, outputs_);
  end_ -= first_;
  first_ = 0;
}

void MetricWindow::add(const hx_metric_batch& batch, uint64_t samples) {
  make_room(batch.rows);
  const uint64_t numbers = batch.rows * outputs_;
  predictions_.insert(predictions_.end(), batch.predictions, batch.predictions + numbers);
  if (classes_)
    labels_.insert(labels_.end(), batch.labels, batch.labels + batch.rows);
  else
    targets_.insert(targets_.end(), batch.targets, batch.targets + numbers);
  running_.samples += samples;
  running_.rows += batch.rows;
}

void MetricWindow::end_step() {
  if (running_.samples == 0) return;
  if (steps_.size() == steps_.capacity() && begin_ > 0 && begin_ >= steps_.size() - begin_) {
    steps_.erase(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
  }
  steps_.push_back(running_);
  samples_ += running_.samples;
  end_ += running_.rows;
  running_ = {};
  for (; samples_ > most_ && begin_ + 1 < steps_.size(); ++begin_) {
    samples_ -= steps_[begin_].samples;
    first_ += steps_[begin_].rows;
  }
  news_ = true;
}

void MetricWindow::fill(hx_metric_batch& batch) const {
  batch.rows = rows();
  batch.predictions = predictions_.data() + first_ * outputs_;
  if (classes_)
    batch.labels = labels_.data() + first_;
  else
    batch.targets = targets_.data() + first_ * outputs_;
}

MetricWindowState MetricWindow::state() const {
  MetricWindowState s;
  s.outputs = outputs_;
  for (size_t i = begin_; i < steps_.size(); ++i) {
    s.samples.push_back(static_cast<double>(steps_[i].samples));
    s.rows.push_back(static_cast<double>(steps_[i].rows));
  }
  const auto part = [&]<typename T>(const std::vector<T>& v, uint64_t width) {
    return std::vector<T>(v.begin() + static_cast<std::ptrdiff_t>(first_ * width),
                          v.begin() + static_cast<std::ptrdiff_t>(end_ * width));
  };
  s.predictions = part(predictions_, outputs_);
  if (classes_)
    s.labels = part(labels_, 1);
  else
    s.targets = part(targets_, outputs_);
  return s;
}

bool MetricWindow::restore(const MetricWindowState& state) {
  const auto rows = static_cast<uint64_t>(std::accumulate(state.rows.begin(), state.rows.end(), 0.0));
  const size_t truths = classes_ ? state.labels.size() : state.targets.size() / outputs_;
  if (state.outputs != outputs_ || state.predictions.size() != rows * outputs_ || truths != rows ||
      (classes_ ? !state.targets.empty() : state.targets.size() != rows * outputs_))
    return false;
  uint64_t at = 0;
  for (size_t i = 0; i < state.rows.size(); ++i) {
    hx_metric_batch batch{};
    batch.rows = static_cast<uint64_t>(state.rows[i]);
    batch.predictions = state.predictions.data() + at * outputs_;
    if (classes_)
      batch.labels = state.labels.data() + at;
    else
      batch.targets = state.targets.data() + at * outputs_;
    add(batch, static_cast<uint64_t>(state.samples[i]));
    end_step();
    at += batch.rows;
  }
  return true;
}

}  // namespace harmonics::engine
