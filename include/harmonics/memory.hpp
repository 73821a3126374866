// Producers and consumers in memory.
#pragma once

#include <algorithm>
#include <vector>

#include <harmonics/stream.hpp>

namespace harmonics {

// Produces the tensors of a list, all of one type.
class MemoryProducer final : public Producer {
 public:
  explicit MemoryProducer(std::vector<HTensor> samples) : samples_(std::move(samples)) {}
  HTensor next() override { return at_ < samples_.size() ? samples_[at_++] : HTensor(); }
  std::size_t size() const override { return samples_.size(); }
  bool rewind() override { return at_ = 0, true; }
  bool seek(uint64_t, uint64_t index) override { return at_ = std::min<std::size_t>(index, samples_.size()), true; }

 private:
  std::vector<HTensor> samples_;
  std::size_t at_ = 0;
};

// Stores its samples.
class CollectConsumer final : public Consumer {
 public:
  void push(const HTensor& sample) override { samples_.push_back(sample); }
  void finish() override { finished_ = true; }
  const std::vector<HTensor>& samples() const { return samples_; }
  bool finished() const { return finished_; }

 private:
  std::vector<HTensor> samples_;
  bool finished_ = false;
};

}  // namespace harmonics
