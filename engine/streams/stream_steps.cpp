#include "engine/streams/stream_steps.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include <fmt/core.h>

#include <harmonics/async.hpp>
#include <harmonics/cache.hpp>

#include "engine/base/byte_count.hpp"
#include "engine/spool/spool.hpp"
#include "engine/streams/augmentations.hpp"

namespace harmonics::engine {

namespace {

// Adapts a Source to Producer, so that wrappers can be applied to it.
class SourceProducer final : public Producer {
 public:
  enum class Known { yes, no };  // describe() returns the sample type; rewind() and seek() work
  explicit SourceProducer(std::shared_ptr<Source> source, Known described = Known::yes, Known goes_back = Known::yes)
      : source_(std::move(source)), described_(described), goes_back_(goes_back) {}
  HTensor next() override { return source_->next(); }
  std::size_t size() const override { return source_->info().size; }
  bool rewind() override { return seek(++epoch_, 0); }
  bool seek(uint64_t epoch, uint64_t index) override {
    if (goes_back_ == Known::no) return false;
    epoch_ = epoch;
    source_->seek(epoch, index);
    return true;
  }
  std::optional<StreamInfo> describe() override {
    return described_ == Known::yes ? std::optional(source_->info()) : std::nullopt;
  }
  int64_t read(uint64_t n, void* to) override { return static_cast<int64_t>(source_->read(n, to)); }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    if (!source_->can_read_at()) return false;
    if (n) source_->read_at(numbers, n, to);
    return true;
  }
  bool restore(uint64_t index, const std::string& position) override { return source_->restore(index, position); }
  std::string position(uint64_t index) override { return source_->position_before(index); }
  void durable(uint64_t index) override { source_->durable(index); }
  bool cancel() override { return source_->cancel(); }
  std::optional<StreamHealth> health() override { return source_->health(); }
  bool numbers(uint64_t n, SampleNumber* to) override {
    if (n == 0) return source_->keep_numbers();
    std::copy(source_->numbers().end() - static_cast<std::ptrdiff_t>(n), source_->numbers().end(), to);
    return true;
  }

 private:
  std::shared_ptr<Source> source_;
  Known described_, goes_back_;
  uint64_t epoch_ = 0;
};

[[noreturn]] void refuse(const std::string& name, const char* option, const std::string& text, const char* wanted) {
  throw Error(ErrorKind::Usage, fmt::format("option '{}={}' of '{}' must be {}", option, text, name, wanted));
}

uint64_t bytes_of(const std::string& name, const std::string& text) {
  const std::optional<uint64_t> bytes = parse_byte_count(text);
  if (!bytes) refuse(name, "cache", text, "a number of bytes, such as 512M or 4G");
  return *bytes;
}

uint64_t count_of(const std::string& name, const char* option, const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(name, option, text, "a whole number");
  return value;
}

// Runs `make`, and adds the stream's name to its errors.
template <typename Make>
auto named(const std::string& name, Make make) {
  try {
    return make();
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("stream '{}': {}", name, e.what()));
  }
}

}  // namespace

const std::vector<StreamOption>& stream_options() {
  static const std::vector<StreamOption> rows = {
      {"cache", "one stream: caches its samples in memory, up to N bytes, such as 512M"},
      {"augment",
       "one stream: shift(2), rotate(15), scale(0.1), flip, crop(24), center(24), cutout(8), noise(0.05) and those of "
       "plugins, separated by commas"},
      {"augment-seed", "one stream: seed of its augmentation; default: seed="},
      {"async", "one stream: prefetches N samples on a separate thread"},
      {"edge",
       "a live stream whose samples arrive faster than they are used: block (the senders wait), drop_oldest, or latest "
       "(at most one step is queued)"},
      {"hold", "with edge=: queue limit in bytes, such as 16M"},
      {"join",
       "all joined streams: order (of arrival) or number (the senders' sample numbers); default: number for live "
       "streams of several addresses that have them"},
      {"unpaired",
       "all joined streams: unmatched samples: drop, last (repeat the previous sample) or stop; refuse: streams of "
       "different length are an error; default: a pass ends with the shortest"},
      {"late", "all joined streams: how long a sample waits for its partners, such as 500ms or 5s"},
      {"where",
       "all joined streams: drops samples that fail this condition on this stream: value<5, value[0]>=0.5, value!=3, "
       "finite"},
      {"skip", "skips the first N samples of a pass"},
      {"take", "ends a pass after N samples"},
      {"shard", "the I-th of N parts, as I/N: every N-th sample"},
      {"repeat", "N passes per epoch"},
      {"shuffle", "shuffles in blocks of N samples; 0 keeps the order; default: training shuffles"},
      {"seed", "seed of shuffling and augmentation; default: the run's"},
      {"batch", "samples per step"},
      {"rest", "a short last batch: keep or drop"}};
  return rows;
}

StreamSteps take_stream_steps(Address& address) {
  return {address.take("cache"), address.take("augment"), address.take("augment-seed"), address.take("async"),
          address.take("where")};
}

SteppedSource with_steps(const std::string& name, Source source, const StreamSteps& steps, Registry& registry) {
  SteppedSource out{known_source(std::move(source)), {}, false, std::nullopt};
  const auto producer = [&] {
    return std::make_shared<SourceProducer>(std::make_shared<Source>(std::move(out.source)));
  };
  if (steps.where) {
    if (steps.augment)
      throw Error(ErrorKind::Usage,
                  fmt::format("where={} of '{}' tests samples that augment= changes in every pass; remove one of them",
                              *steps.where, name));
    out.condition = named(name, [&] { return Condition(*steps.where, out.source.info()); });
  }
  if (steps.cache) {
    const uint64_t most = bytes_of(name, *steps.cache);
    out.source = named(name, [&] { return Source(name, std::make_shared<CacheProducer>(producer(), most)); });
  }
  if (steps.augment_seed && !steps.augment)
    throw Error(ErrorKind::Usage,
                fmt::format("augment-seed={} of '{}' has no effect without augment=", *steps.augment_seed, name));
  if (steps.augment) {
    Augmented augmented = named(name, [&] { return augment(producer(), *steps.augment, registry); });
    out.passes_differ = true;
    if (!steps.augment_seed)
      out.reseed = std::move(augmented.reseed);
    else
      for (const auto& reseed : augmented.reseed) reseed(count_of(name, "augment-seed", *steps.augment_seed));
    out.source = Source(name, augmented.producer);
  }
  if (steps.async) {
    const uint64_t ahead = count_of(name, "async", *steps.async);
    out.source = named(name, [&] { return Source(name, std::make_shared<AsyncProducer>(producer(), ahead)); });
  }
  return out;
}

Source known_source(Source source) {
  if (source.info().live) return source;
  if (source.info().size == 0) return source.cannot_seek(), std::move(source);
  using Known = SourceProducer::Known;
  const Known described = source.described() ? Known::yes : Known::no,
              goes_back = source.cannot_seek().empty() ? Known::yes : Known::no;
  if (described == Known::yes && goes_back == Known::yes) return source;
  const std::string name = source.name();
  return Source(name, std::make_shared<KnownProducer>(std::make_shared<SourceProducer>(
                          std::make_shared<Source>(std::move(source)), described, goes_back)));
}

Source with_spool(const std::string& name, Source source, const std::string& from, Spool& spool) {
  return Source(name,
                spool.add(name, from, std::make_shared<SourceProducer>(std::make_shared<Source>(std::move(source)))));
}

std::vector<uint64_t> numbers_that_hold(const std::vector<ConditionedMember>& members, uint64_t groups) {
  std::vector<uint64_t> numbers;
  bool first = true;
  for (const auto& [member, condition] : members) {
    Source& source = *member.source;
    if (source.info().size == 0)
      throw Error(ErrorKind::Usage,
                  fmt::format("where= of '{}' requires a stream that ends and can be read again; this one has no end",
                              source.name()));
    std::vector<uint64_t> own;
    std::vector<std::byte> group(source.sample_bytes() * member.per_group);
    source.seek(0, 0);
    for (uint64_t number = 0; number < groups && source.read(member.per_group, group.data()) == member.per_group;
         ++number) {
      bool holds = true;
      for (uint64_t k = 0; k < member.per_group; ++k)
        holds = holds && condition(group.data() + k * source.sample_bytes());
      if (holds && (first || std::binary_search(numbers.begin(), numbers.end(), number))) own.push_back(number);
    }
    source.rewind(0);
    numbers = std::move(own);
    first = false;
    if (numbers.empty())
      throw Error(ErrorKind::Usage,
                  fmt::format("where= of '{}' keeps none of {} samples", source.name(), source.info().size));
  }
  return numbers;
}

std::shared_ptr<Source> pick(const std::shared_ptr<Source>& source,
                             std::shared_ptr<const std::vector<uint64_t>> numbers, uint64_t per_group) {
  return std::make_shared<Source>(
      source->name(),
      std::make_shared<PickProducer>(std::make_shared<SourceProducer>(source), std::move(numbers), per_group));
}

}  // namespace harmonics::engine
