// Producers over producers: shuffle, batch, async, take, skip, repeat, shard. They combine freely.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <harmonics/checked.hpp>
#include <harmonics/known.hpp>
#include <harmonics/philox.hpp>

namespace harmonics {

// The address option equivalent to a wrapper. A graph unwraps the producers bound to it and applies these options, in
// the order below, to all streams that are read together. Wrappers in another order remain and act on their own stream.
struct WrapperOption {
  enum class Acts { Never, Anywhere, Cache, Augment, Where, Skip, Take, Shard, Repeat, Shuffle, Batch };
  Acts acts = Acts::Never;
  std::string text;  // "shuffle=8192&seed=1"
};

// Forwards all calls; the wrappers below override some. Their state is a function of (epoch, index), so the order of
// samples depends neither on earlier reads nor on the prefetch of another wrapper.
class WrappedProducer : public Producer {
 public:
  explicit WrappedProducer(std::shared_ptr<Producer> inner) : inner_(std::move(inner)) {
    if (!inner_) throw Error(ErrorKind::Usage, "a wrapper needs a producer to wrap");
    // Caches below the wrappers: above them, every pass would repeat the order of the first.
    const bool known = dynamic_cast<WrappedProducer*>(inner_.get()) || dynamic_cast<KnownProducer*>(inner_.get());
    if (!known) inner_ = std::make_shared<KnownProducer>(std::move(inner_));
  }
  virtual WrapperOption option() const { return {}; }
  const std::shared_ptr<Producer>& inner() const { return inner_; }
  HTensor next() override { return inner_->next(); }
  std::size_t size() const override { return inner_->size(); }
  bool rewind() override { return seek(epoch_ + 1, 0); }
  bool seek(uint64_t epoch, uint64_t index) final {
    epoch_ = epoch;
    return go_to(index);
  }
  std::optional<StreamInfo> describe() override {
    std::optional<StreamInfo> info = inner_->describe();
    if (info) info->size = size();
    return info;
  }
  int64_t read(uint64_t n, void* to) override { return inner_->read(n, to); }
  bool cancel() override { return inner_->cancel(); }
  std::optional<StreamHealth> health() override { return inner_->health(); }

 protected:
  // Seeks to sample `index` of pass epoch().
  virtual bool go_to(uint64_t index) { return inner_->seek(epoch_, index); }
  uint64_t epoch() const { return epoch_; }

  // Returns the type of the samples, or of the first sample if the source does not describe them.
  std::optional<StreamInfo> known_samples() {
    std::optional<StreamInfo> info = inner_->describe();
    if (info) return info;
    inner_ = std::make_shared<KnownProducer>(std::move(inner_), KnownProducer::Look::Always);
    return inner_->describe();
  }

  // Returns the index of a sample in the source: `sum`, or times * step + more. Throws on overflow.
  static uint64_t place(std::optional<uint64_t> sum) {
    if (!sum) throw Error(ErrorKind::Usage, "sample numbers must be below 2^64");
    return *sum;
  }
  static uint64_t place(uint64_t times, uint64_t step, uint64_t more) {
    const std::optional<uint64_t> behind = checked_product(times, step);
    return place(behind ? checked_sum(*behind, more) : std::nullopt);
  }

  // Skips n samples by reading; returns false if the pass ends first.
  bool drop(uint64_t n) {
    for (; n > 0; --n)
      if (!inner_->next()) return false;
    return true;
  }

  std::shared_ptr<Producer> inner_;

 private:
  uint64_t epoch_ = 0;
};

// A wrapper with one sample per sample of the source; live positions are those of the source.
class SampleWiseProducer : public WrappedProducer {
 public:
  using WrappedProducer::WrappedProducer;
  bool restore(uint64_t index, const std::string& position) override { return inner_->restore(index, position); }
  std::string position(uint64_t index) override { return inner_->position(index); }
  void durable(uint64_t index) override { inner_->durable(index); }
  bool numbers(uint64_t n, SampleNumber* to) override {
    if (n == 0) return numbered_ = inner_->numbers(0, nullptr);
    if (!numbered_ || lost_ || n > given_.size()) return false;
    std::copy(given_.end() - static_cast<std::ptrdiff_t>(n), given_.end(), to);
    return true;
  }

 protected:
  bool numbered() const { return numbered_; }
  // Collect the numbers of the samples of one next() or read(): clear; add those of the source's last n samples, or
  // these.
  void begin_numbers() {
    given_.clear();
    lost_ = false;
  }
  void add_numbers(uint64_t n) {
    if (!numbered_ || n == 0) return;
    given_.resize(given_.size() + n);
    if (!inner_->numbers(n, given_.data() + given_.size() - n)) lost_ = true;
  }
  void add_numbers(const SampleNumber* numbers, uint64_t n) {
    if (numbered_) given_.insert(given_.end(), numbers, numbers + n);
  }

 private:
  bool numbered_ = false;  // numbers were requested
  bool lost_ = false;      // the source gave no numbers of some samples
  std::vector<SampleNumber> given_;
};

// Produces the first n samples of each pass.
class TakeProducer final : public WrappedProducer {
 public:
  TakeProducer(std::shared_ptr<Producer> inner, uint64_t n) : WrappedProducer(std::move(inner)), n_(n), left_(n) {}
  WrapperOption option() const override { return {WrapperOption::Acts::Take, "take=" + std::to_string(n_)}; }
  HTensor next() override {
    if (left_ == 0) return {};
    HTensor sample = inner_->next();
    left_ = sample ? left_ - 1 : 0;
    return sample;
  }
  std::size_t size() const override {
    const std::size_t n = inner_->size();
    return n ? std::min<std::size_t>(n, n_) : n_;
  }
  int64_t read(uint64_t n, void* to) override {
    const int64_t got = inner_->read(std::min(n, left_), to);
    if (got >= 0) left_ -= static_cast<uint64_t>(got);
    return got;
  }

 private:
  bool go_to(uint64_t index) override {
    if (!inner_->seek(epoch(), index)) return false;
    left_ = n_ - std::min(n_, index);
    return true;
  }

  uint64_t n_, left_;
};

// Skips the first n samples of each pass.
class SkipProducer final : public WrappedProducer {
 public:
  SkipProducer(std::shared_ptr<Producer> inner, uint64_t n) : WrappedProducer(std::move(inner)), n_(n) {}
  WrapperOption option() const override { return {WrapperOption::Acts::Skip, "skip=" + std::to_string(n_)}; }
  HTensor next() override { return start() ? inner_->next() : HTensor(); }
  std::size_t size() const override {
    const std::size_t n = inner_->size();
    return n - std::min<std::size_t>(n, n_);
  }
  int64_t read(uint64_t n, void* to) override { return start() ? inner_->read(n, to) : 0; }

 private:
  bool start() {
    if (!started_) {
      started_ = true;
      ended_ = !drop(n_);
    }
    return !ended_;
  }
  bool go_to(uint64_t index) override {
    if (!inner_->seek(epoch(), index ? place(checked_sum(n_, index)) : 0)) return false;
    started_ = index > 0;
    ended_ = false;
    return true;
  }

  uint64_t n_;
  bool started_ = false, ended_ = false;
};

// Produces every count-th sample, starting at index.
class ShardProducer final : public WrappedProducer {
 public:
  ShardProducer(std::shared_ptr<Producer> inner, uint64_t index, uint64_t count)
      : WrappedProducer(std::move(inner)), index_(index), count_(count), gap_(index) {
    if (index >= count)
      throw Error(ErrorKind::Usage, "shard " + std::to_string(index) + "/" + std::to_string(count) +
                                        " does not exist; shards are counted from 0");
  }
  WrapperOption option() const override {
    return {WrapperOption::Acts::Shard, "shard=" + std::to_string(index_) + "/" + std::to_string(count_)};
  }
  HTensor next() override {
    if (!drop(gap_)) return {};
    gap_ = count_ - 1;
    return inner_->next();
  }
  std::size_t size() const override {
    const std::size_t n = inner_->size();
    return n / count_ + (index_ < n % count_ ? 1 : 0);
  }
  int64_t read(uint64_t n, void* to) override { return count_ == 1 ? inner_->read(n, to) : -1; }

 private:
  bool go_to(uint64_t index) override {
    if (!inner_->seek(epoch(), index ? place(index - 1, count_, index_ + 1) : 0)) return false;
    gap_ = index ? count_ - 1 : index_;
    return true;
  }

  uint64_t index_, count_, gap_;
};

// Repeats the source `times` times; 0: without end.
class RepeatProducer final : public WrappedProducer {
 public:
  RepeatProducer(std::shared_ptr<Producer> inner, uint64_t times) : WrappedProducer(std::move(inner)), times_(times) {}
  WrapperOption option() const override {
    return times_ ? WrapperOption{WrapperOption::Acts::Repeat, "repeat=" + std::to_string(times_)} : WrapperOption{};
  }
  HTensor next() override {
    for (;;) {
      HTensor sample = inner_->next();
      if (sample) return given_ = true, sample;
      if (!again()) return {};
    }
  }
  std::size_t size() const override {
    const std::size_t n = inner_->size();
    return n > static_cast<std::size_t>(std::numeric_limits<int64_t>::max()) / std::max<uint64_t>(times_, 1)
               ? 0
               : n * times_;
  }
  int64_t read(uint64_t n, void* to) override {
    if (!info_) info_ = inner_->describe();
    if (!info_ || n == 0) return info_ ? inner_->read(0, to) : -1;
    uint64_t got = 0;
    while (got < n) {
      const int64_t more = inner_->read(n - got, static_cast<char*>(to) + got * info_->sample_bytes());
      if (more < 0) return -1;
      got += static_cast<uint64_t>(more);
      given_ = given_ || more > 0;
      if (got < n && !again()) break;
    }
    return static_cast<int64_t>(got);
  }

 private:
  bool again() {
    if (!given_ || (times_ && pass_ + 1 >= times_)) return false;
    if (!start(pass_ + 1, 0)) throw Error(ErrorKind::Stream, "repeat: the producer cannot be read a second time");
    return true;
  }
  // Numbers the passes of the source consecutively. Without end, each epoch has its own range of 2^32 passes.
  bool start(uint64_t pass, uint64_t index) {
    if (!inner_->seek((times_ ? epoch() * times_ : epoch() << 32) + pass, index)) return false;
    pass_ = pass;
    given_ = index > 0;
    return true;
  }
  bool go_to(uint64_t index) override {
    const uint64_t n = inner_->size();
    if (n) {
      const uint64_t pass = times_ ? std::min(times_ - 1, index / n) : index / n;
      return start(pass, index - pass * n);
    }
    if (!start(0, 0)) return false;
    for (; index > 0; --index)
      if (!next()) throw Error(ErrorKind::Stream, "repeat: the passes have become shorter");
    return true;
  }

  uint64_t times_, pass_ = 0;
  bool given_ = false;
  std::optional<StreamInfo> info_;
};

// Shuffles blocks of `block` samples; the order depends only on (seed, epoch, block number).
class ShuffleProducer final : public WrappedProducer {
 public:
  ShuffleProducer(std::shared_ptr<Producer> inner, uint32_t block, uint64_t seed = 0)
      : WrappedProducer(std::move(inner)), capacity_(block), given_capacity_(block), seed_(seed) {
    if (block == 0) throw Error(ErrorKind::Usage, "shuffle: a block holds at least 1 sample");
  }
  WrapperOption option() const override {
    return {WrapperOption::Acts::Shuffle,
            "shuffle=" + std::to_string(given_capacity_) + "&seed=" + std::to_string(seed_)};
  }
  HTensor next() override {
    if (at_ == order_.size() && !fill()) return {};
    const uint32_t from = order_[at_++];
    if (!bytes_) return std::move(samples_[from]);
    return HTensor(info_->dtype, info_->sample, block_.data() + from * bytes_);
  }
  int64_t read(uint64_t n, void* to) override {
    prepare();
    if (!bytes_) return -1;
    for (uint64_t i = 0; i < n; ++i) {
      if (at_ == order_.size() && !fill()) return static_cast<int64_t>(i);
      std::memcpy(static_cast<char*>(to) + i * bytes_, block_.data() + order_[at_++] * bytes_, bytes_);
    }
    return static_cast<int64_t>(n);
  }

 private:
  void prepare() {
    if (prepared_) return;
    prepared_ = true;
    info_ = inner_->describe();
    char none = 0;
    if (!info_ || inner_->read(0, &none) < 0) return;  // samples are read one by one
    if (const std::size_t n = inner_->size()) capacity_ = static_cast<uint32_t>(std::min<std::size_t>(n, capacity_));
    bytes_ = info_->sample_bytes();
    const auto bytes = checked_product(bytes_, capacity_);
    if (!bytes || *bytes > block_.max_size())
      throw Error(ErrorKind::Usage,
                  "shuffle: a block of " + std::to_string(capacity_) + " samples of " + std::to_string(bytes_) +
                      " bytes is larger than any memory; give a smaller block, for example shuffle=8192");
    block_.resize(*bytes);
  }
  // Reads at most one block again.
  bool go_to(uint64_t index) override {
    prepare();
    const uint64_t block = index / capacity_, offset = index % capacity_;
    if (!inner_->seek(epoch(), block * capacity_)) return false;
    number_ = block;
    order_.clear();
    at_ = 0;
    if (offset && (!fill() || order_.size() < offset))
      throw Error(ErrorKind::Stream,
                  "shuffle: cannot resume at sample " + std::to_string(index) + ": the pass has become shorter");
    at_ = offset;
    return true;
  }
  bool fill() {
    prepare();
    uint32_t n = 0;
    if (bytes_) {
      const int64_t got = inner_->read(capacity_, block_.data());
      if (got < 0) throw Error(ErrorKind::Plugin, "shuffle: the producer gave blocks of samples and then refused to");
      n = static_cast<uint32_t>(got);
    } else {
      samples_.clear();
      while (samples_.size() < capacity_) {
        HTensor sample = inner_->next();
        if (!sample) break;
        samples_.push_back(std::move(sample));
      }
      n = static_cast<uint32_t>(samples_.size());
    }
    order_.resize(n);
    at_ = 0;
    shuffled_order(order_.data(), n, seed_, epoch(), number_++);
    return n > 0;
  }

  uint32_t capacity_, given_capacity_;
  uint64_t seed_, number_ = 0;
  std::vector<uint32_t> order_;
  std::size_t at_ = 0, bytes_ = 0;
  bool prepared_ = false;
  std::optional<StreamInfo> info_;
  std::vector<char> block_;
  std::vector<HTensor> samples_;
};

// Batches n samples along a new first axis. The last batch of a pass is shorter, or dropped.
class BatchProducer final : public WrappedProducer {
 public:
  enum class Last { Short, Dropped };
  BatchProducer(std::shared_ptr<Producer> inner, uint64_t n, Last last = Last::Short)
      : WrappedProducer(std::move(inner)), n_(n), last_(last) {
    if (n == 0) throw Error(ErrorKind::Usage, "batch: a batch holds at least 1 sample");
    if (n > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      throw Error(ErrorKind::Usage, "batch: a batch of " + std::to_string(n) + " samples is larger than any memory");
  }
  WrapperOption option() const override {
    return {WrapperOption::Acts::Batch, "batch=" + std::to_string(n_) + (last_ == Last::Dropped ? "&rest=drop" : "")};
  }
  HTensor next() override {
    std::vector<HTensor> samples;
    while (samples.size() < n_) {
      HTensor sample = inner_->next();
      if (!sample) break;
      samples.push_back(std::move(sample));
    }
    if (samples.empty() || (samples.size() < n_ && last_ == Last::Dropped)) return {};
    return stacked(samples);
  }
  std::size_t size() const override {
    const std::size_t n = inner_->size();
    return n / n_ + (n % n_ && last_ == Last::Short ? 1 : 0);
  }
  // The type is known in advance only if all batches are full.
  std::optional<StreamInfo> describe() override {
    std::optional<StreamInfo> info = inner_->describe();
    if (!info || (last_ == Last::Short && (inner_->size() == 0 || inner_->size() % n_))) return std::nullopt;
    Shape shape{static_cast<int64_t>(n_)};
    for (const int64_t d : info->sample) shape.push_back(d);
    info->sample = shape;
    info->size = size();
    info->position_axes = 0;
    return info;
  }
  int64_t read(uint64_t n, void* to) override {
    const int64_t got = inner_->read(place(n, n_, 0), to);
    return got < 0 ? got : got / static_cast<int64_t>(n_);
  }

 private:
  // Skips the previous batch by reading it, since it may be the short last one.
  bool go_to(uint64_t index) override {
    if (!inner_->seek(epoch(), index ? place(index - 1, n_, 0) : 0)) return false;
    if (index && !next())
      throw Error(ErrorKind::Stream, "batch: there is no batch " + std::to_string(index - 1) + " any more");
    return true;
  }
  static HTensor stacked(const std::vector<HTensor>& samples) {
    const DType dtype = samples[0].dtype();
    const Shape one = samples[0].shape();
    Shape shape{static_cast<int64_t>(samples.size())};
    for (const int64_t d : one) shape.push_back(d);
    HTensor batch(dtype, shape);
    const size_t bytes = tensor_bytes(dtype, one);
    char* at = static_cast<char*>(batch.mutable_bytes());
    for (const HTensor& sample : samples) {
      if (sample.dtype() != dtype || sample.shape() != one)
        throw Error(ErrorKind::Stream, "batch: samples of shapes " + one.str() + " and " + sample.shape().str() +
                                           " cannot be in one batch; all must have one type");
      std::memcpy(at, sample.bytes(), bytes);
      at += bytes;
    }
    return batch;
  }

  uint64_t n_;
  Last last_;
};

namespace detail {

// A producer without the wrappers that are equivalent to address options, and these options:
// "take=100&shuffle=8&seed=1".
struct Unwrapped {
  std::shared_ptr<Producer> producer;
  std::string options;
};
inline Unwrapped unwrapped(std::shared_ptr<Producer> producer) {
  using Acts = WrapperOption::Acts;
  Unwrapped u{std::move(producer), {}};
  Acts above = Acts::Batch;
  bool first = true, ahead = false;
  while (const auto* wrapper = dynamic_cast<const WrappedProducer*>(u.producer.get())) {
    const WrapperOption o = wrapper->option();
    const bool anywhere = o.acts == Acts::Anywhere;
    if (o.acts == Acts::Never || (!anywhere && (first ? o.acts > above : o.acts >= above))) break;
    if (!anywhere || !ahead) u.options += (u.options.empty() ? "" : "&") + o.text;  // one prefetch is enough
    if (anywhere)
      ahead = true;
    else
      above = o.acts, first = false;
    const std::shared_ptr<Producer> inner = wrapper->inner();
    u.producer = inner;
  }
  const auto wrapper_of = [](const std::shared_ptr<Producer>& p) {
    return dynamic_cast<const WrappedProducer*>(p.get());
  };
  for (const WrappedProducer* wrapper = wrapper_of(u.producer); wrapper; wrapper = wrapper_of(wrapper->inner()))
    if (const WrapperOption o = wrapper->option(); o.acts == Acts::Batch)
      throw Error(ErrorKind::Usage, "a graph makes batches of samples itself, and cannot take those that " + o.text +
                                        " makes under another wrapper; make BatchProducer the outermost, or remove it");
  return u;
}

}  // namespace detail

}  // namespace harmonics
