// CacheProducer: caches the samples of a source, so that they are decoded, parsed or fetched once.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <harmonics/quantity.hpp>
#include <harmonics/wrappers.hpp>

namespace harmonics {

// Repeats the samples of the source's first pass in each pass, also by index. Caches samples when they are first read.
// Rejects an unbounded source, and a source whose samples take more than `most_bytes`.
class CacheProducer final : public WrappedProducer {
 public:
  CacheProducer(std::shared_ptr<Producer> inner, uint64_t most_bytes)
      : WrappedProducer(std::move(inner)), most_bytes_(most_bytes) {
    const std::optional<StreamInfo> info = inner_->size() ? known_samples() : std::nullopt;
    if (!info || info->size == 0)
      throw Error(ErrorKind::Usage,
                  "cache: the producer does not report its number of samples, so they cannot be cached");
    info_ = *info;
    bytes_ = info_.sample_bytes();
    if (bytes_ > most_bytes / info_.size)
      throw Error(ErrorKind::Usage, "cache: " + quantity(info_.size, "sample") + " of " + quantity(bytes_, "byte") +
                                        " take more than the " + quantity(most_bytes, "byte") +
                                        " allowed; allow more, or read fewer samples");
    kept_.reset(new char[info_.size * bytes_]);  // not zeroed: pages are allocated as they are filled
    filled_.resize(info_.size);
  }
  WrapperOption option() const override { return {WrapperOption::Acts::Cache, "cache=" + std::to_string(most_bytes_)}; }
  HTensor next() override {
    if (at_ == info_.size) return {};
    fill(at_, 1);
    return HTensor(info_.dtype, info_.sample, kept_.get() + at_++ * bytes_);
  }
  int64_t read(uint64_t n, void* to) override {
    n = std::min(n, info_.size - at_);
    fill(at_, n);
    if (n) std::memcpy(to, kept_.get() + at_ * bytes_, n * bytes_);
    at_ += n;
    return static_cast<int64_t>(n);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    if (n && !inner_->read_at(numbers, 0, to)) fill(0, info_.size);
    for (uint64_t i = 0; i < n; ++i) {
      char* place = kept_.get() + numbers[i] * bytes_;
      if (!filled_[numbers[i]]) {
        inner_->read_at(numbers + i, 1, place);
        filled_[numbers[i]] = true;
      }
      std::memcpy(static_cast<char*>(to) + i * bytes_, place, bytes_);
    }
    return true;
  }

 private:
  // Does not seek in the source, since cached samples are not read again.
  bool go_to(uint64_t index) override {
    if (index > info_.size) return false;
    at_ = index;
    return true;
  }

  // Reads the samples of [first, first + n) that are not cached, in runs.
  void fill(uint64_t first, uint64_t n) {
    for (uint64_t i = first; i < first + n;) {
      if (filled_[i]) {
        ++i;
        continue;
      }
      uint64_t end = i;
      while (end < first + n && !filled_[end]) ++end;
      if (inner_at_ != i && !inner_->seek(0, i))
        throw Error(ErrorKind::Stream, "cache: the producer cannot go to sample " + std::to_string(i));
      read_run(i, end);
      inner_at_ = end;
      i = end;
    }
  }
  void read_run(uint64_t first, uint64_t end) {
    char* to = kept_.get() + first * bytes_;
    int64_t got = inner_->read(end - first, to);
    if (got < 0) {
      for (got = 0; first + static_cast<uint64_t>(got) < end; ++got, to += bytes_) {
        const HTensor sample = inner_->next();
        if (!sample) break;
        if (sample.dtype() != info_.dtype || sample.shape() != info_.sample)
          throw Error(ErrorKind::Stream, "cache: a sample of shape " + sample.shape().str() + " came, announced was " +
                                             info_.sample.str());
        std::memcpy(to, sample.bytes(), bytes_);
      }
    }
    if (first + static_cast<uint64_t>(got) < end)
      throw Error(ErrorKind::Stream, "cache: the producer announced " + quantity(info_.size, "sample") +
                                         " and ended after " + std::to_string(first + static_cast<uint64_t>(got)));
    std::fill(filled_.begin() + static_cast<std::ptrdiff_t>(first), filled_.begin() + static_cast<std::ptrdiff_t>(end),
              true);
  }

  uint64_t most_bytes_;
  StreamInfo info_;
  std::size_t bytes_ = 0;
  std::unique_ptr<char[]> kept_;
  std::vector<bool> filled_;
  uint64_t at_ = 0, inner_at_ = 0;
};

}  // namespace harmonics
