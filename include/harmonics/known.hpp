// KnownProducer: adds a sample type and rewinding to a producer that has only next() and size().
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/quantity.hpp>
#include <harmonics/stream.hpp>

namespace harmonics {

// Forwards to a producer that describes its samples and rewinds. Otherwise reads the first sample to find the type,
// counts the classes of labels (integers of rank 0), and caches the samples of a finite producer that cannot rewind
// while they are read. It is below all wrappers, so that each wrapper can rewind.
class KnownProducer final : public Producer {
 public:
  static constexpr uint64_t kMostKept = uint64_t{4} << 30;
  enum class Look { Finite, Always };  // whose first sample to inspect; unbounded producers may block

  explicit KnownProducer(std::shared_ptr<Producer> inner, Look look = Look::Finite, uint64_t most_kept = kMostKept)
      : inner_(std::move(inner)), look_(look), most_kept_(most_kept) {}

  HTensor next() override {
    start();
    touched_ = true;
    if (first_) return std::exchange(first_, HTensor());
    if (direct_ || !keeping()) return inner_->next();
    if (at_ == count_ && !keep(1)) return {};
    return HTensor(info_->dtype, info_->sample, kept_.data() + at_++ * bytes_);
  }
  std::size_t size() const override { return inner_->size(); }
  bool rewind() override {
    start();
    if (direct_) return first_ = {}, inner_->rewind();
    return seek(0, 0);
  }
  bool seek(uint64_t epoch, uint64_t index) override {
    start();
    if (direct_) return first_ = {}, inner_->seek(epoch, index);
    if (!keeping()) {
      if (!touched_ && index == 0) return true;
      throw Error(ErrorKind::Stream, "the producer does not rewind, and its " + quantity(size(), "sample") +
                                         " take more than the " + std::to_string(most_kept_) +
                                         " bytes that are cached by default; give cache=SIZE, or run one epoch");
    }
    if (index > count_) keep(index - count_);
    if (index > count_)
      throw Error(ErrorKind::Stream,
                  "cannot resume at sample " + std::to_string(index) + ": the pass has " + quantity(count_, "sample"));
    at_ = index;
    return true;
  }
  std::optional<StreamInfo> describe() override {
    start();
    return info_;
  }
  int64_t read(uint64_t n, void* to) override {
    start();
    if (direct_ && described_) return inner_->read(n, to);
    if (!info_) return -1;
    if (!direct_ && keeping()) return read_kept(n, static_cast<char*>(to));
    auto* out = static_cast<char*>(to);
    uint64_t got = 0;
    for (; got < n; ++got, out += bytes_) {
      const HTensor sample = next();
      if (!sample) break;
      put(sample, out);
    }
    return static_cast<int64_t>(got);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    start();
    return direct_ && described_ && inner_->read_at(numbers, n, to);
  }
  bool restore(uint64_t index, const std::string& position) override {
    return !first_ && inner_->restore(index, position);
  }
  std::string position(uint64_t index) override { return inner_->position(index); }
  void durable(uint64_t index) override { inner_->durable(index); }
  bool cancel() override { return inner_->cancel(); }
  std::optional<StreamHealth> health() override { return inner_->health(); }
  bool numbers(uint64_t n, SampleNumber* to) override { return !(n == 0 && first_) && inner_->numbers(n, to); }

 private:
  bool keeping() const { return finite_ && fits_; }

  // Initialises on the first call. Every function that reads or describes samples calls it.
  void start() {
    if (started_) return;
    started_ = true;
    info_ = inner_->describe();
    described_ = info_.has_value();
    finite_ = inner_->size() > 0 && !(info_ && info_->live);
    direct_ = !finite_ || inner_->seek(0, 0);
    HTensor first;
    if (!described_ && (finite_ || look_ == Look::Always)) {
      first = inner_->next();
      if (!first) return;
      info_.emplace();
      info_->dtype = first.dtype();
      info_->sample = first.shape();
      info_->size = size();
    }
    if (!info_) return;
    bytes_ = info_->sample_bytes();
    fits_ = finite_ && bytes_ <= most_kept_ / std::max<std::size_t>(size(), 1);
    if (first && finite_ && direct_)
      inner_->seek(0, 0);
    else if (first && keeping())
      add(first);
    else
      first_ = std::move(first);
    if (!described_ && finite_ && is_label()) info_->classes = count_classes();
  }

  bool is_label() const {
    const bool whole = info_->dtype == DType::U8 || info_->dtype == DType::I32 || info_->dtype == DType::I64;
    return whole && info_->sample.rank() == 0 && (direct_ || keeping());
  }
  // Returns one more than the largest label.
  int64_t count_classes() {
    int64_t largest = 0;
    for (HTensor x = next(); x; x = next()) {
      const int64_t label = x.dtype() == DType::U8    ? x.data<uint8_t>()[0]
                            : x.dtype() == DType::I32 ? x.data<int32_t>()[0]
                                                      : x.data<int64_t>()[0];
      largest = std::max(largest, label);
    }
    seek(0, 0);
    return largest == std::numeric_limits<int64_t>::max() ? 0 : largest + 1;
  }

  void put(const HTensor& sample, char* to) const {
    if (sample.dtype() != info_->dtype || sample.shape() != info_->sample)
      throw Error(ErrorKind::Stream, "a sample of shape " + sample.shape().str() + " came, the stream has samples of " +
                                         info_->sample.str() + "; all samples of a stream have one type");
    std::memcpy(to, sample.bytes(), bytes_);
  }
  void add(const HTensor& sample) {
    kept_.resize((count_ + 1) * bytes_);
    put(sample, kept_.data() + count_ * bytes_);
    ++count_;
  }
  // Reads up to n more samples; returns their number.
  uint64_t keep(uint64_t n) {
    if (kept_.empty()) kept_.reserve(size() * bytes_);
    const uint64_t before = count_;
    if (described_ && !ended_) {
      n = std::min<uint64_t>(n, std::max<uint64_t>(size(), count_ + 1) - count_);
      kept_.resize((count_ + n) * bytes_);
      const int64_t got = inner_->read(n, kept_.data() + count_ * bytes_);
      count_ += static_cast<uint64_t>(std::max<int64_t>(got, 0));
      kept_.resize(count_ * bytes_);
      if (got >= 0) return ended_ = static_cast<uint64_t>(got) < n, count_ - before;
    }
    while (!ended_ && count_ - before < n) {
      const HTensor sample = inner_->next();
      if (sample)
        add(sample);
      else
        ended_ = true;
    }
    return count_ - before;
  }
  int64_t read_kept(uint64_t n, char* to) {
    if (at_ + n > count_) keep(at_ + n - count_);
    n = std::min(n, count_ - at_);
    if (n) std::memcpy(to, kept_.data() + at_ * bytes_, n * bytes_);
    at_ += n;
    return static_cast<int64_t>(n);
  }

  std::shared_ptr<Producer> inner_;
  Look look_;
  uint64_t most_kept_;
  std::optional<StreamInfo> info_;
  bool started_ = false, described_ = false, finite_ = false, fits_ = false, touched_ = false, ended_ = false;
  bool direct_ = false;  // forwards all calls: the source can rewind, or is unbounded
  HTensor first_;        // inspected but not yet returned
  std::vector<char> kept_;
  std::size_t bytes_ = 0;
  uint64_t count_ = 0, at_ = 0;
};

}  // namespace harmonics
