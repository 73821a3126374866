// Checks of producers and consumers, opened at an address.
#include <cstring>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/address.hpp"
#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/item_checks.hpp"
#include "engine/streams/streams.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;

constexpr uint64_t kMost = 20'000;  // maximum number of samples checked in a pass

class OneItem {
 public:
  OneItem(const ItemPtr& item, const CheckSettings& settings)
      : address_(parse_address(settings.address.empty() ? item->name + ":" : settings.address)) {
    if (address_.scheme != item->name)
      throw Error(ErrorKind::Usage, fmt::format("the address '{}' is not of '{}'", settings.address, item->name));
    registry_.add(std::const_pointer_cast<Item>(item));
  }
  Source source() { return open_source(registry_, "stream", address_); }
  Sink sink() { return open_sink(registry_, "stream", address_); }

 private:
  Registry registry_;
  Address address_;
};

std::vector<HTensor> pass(Source& source) {
  std::vector<HTensor> samples;
  while (samples.size() < kMost) {
    HTensor t = source.next();
    if (!t) break;
    samples.push_back(std::move(t));
  }
  return samples;
}

Finding differ(const std::vector<HTensor>& expected, const std::vector<HTensor>& got, const std::string& how) {
  if (expected.size() != got.size())
    return {Outcome::Failed, fmt::format("{} {}, {} at first", quantity(got.size(), "sample"), how, expected.size()),
            "a pass has the same samples each time"};
  for (size_t i = 0; i < expected.size(); ++i)
    if (!same_bits(expected[i], got[i]))
      return {Outcome::Failed, fmt::format("sample {} {} differs from the first pass", i, how),
              "the same epoch and index give the same sample"};
  return {Outcome::Passed, fmt::format("{} samples", got.size()), ""};
}

}  // namespace

void check_producer(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  std::vector<HTensor> samples;
  bool live = false, unbounded = false;
  attempt(log, "opens and gives samples", [&]() -> Finding {
    std::optional<Source> source;
    try {
      source = OneItem(item, settings).source();
    } catch (const Error& e) {
      if (!settings.address.empty()) throw;
      return {Outcome::Noted, fmt::format("'{}:' does not open: {}", item->name, e.what()),
              "give an address to open: --address '" + item->name + ":...'"};
    }
    live = source->info().live;
    unbounded = source->info().size == 0;
    samples = pass(*source);
    if (samples.empty()) return {Outcome::Failed, "no sample", "next() gives one at least"};
    return {Outcome::Passed,
            fmt::format("{}{} of {}", samples.size(), samples.size() == kMost ? " and more" : "",
                        sample_type_text(source->info().dtype, source->info().sample)),
            ""};
  });
  if (samples.empty() || live) return;
  if (!unbounded && samples.size() < kMost)
    attempt(log, "has as many samples as size() returns", [&]() -> Finding {
      const uint64_t said = OneItem(item, settings).source().info().size;
      if (said == samples.size()) return {};
      return {Outcome::Failed, fmt::format("size() returns {}, a pass has {}", said, samples.size()),
              "size() counts the samples of a pass; 0 where that is not known"};
    });
  attempt(log, "gives the same when it is opened again", [&] {
    Source again = OneItem(item, settings).source();
    return differ(samples, pass(again), "when opened again");
  });
  attempt(log, "rewinds", [&]() -> Finding {
    Source source = OneItem(item, settings).source();
    if (const std::string why = source.cannot_seek(); !why.empty())
      return {Outcome::Noted, why,
              "override rewind(), so that runs can be resumed and need not keep samples in memory"};
    const size_t at = samples.size() / 3;
    for (size_t i = 0; i <= at; ++i) source.next();
    source.seek(0, at);
    return differ({samples.begin() + static_cast<std::ptrdiff_t>(at), samples.end()}, pass(source),
                  fmt::format("after seek(0, {})", at));
  });
  attempt(log, "gives the same samples in blocks", [&]() -> Finding {
    Source source = OneItem(item, settings).source();
    const size_t bytes = source.sample_bytes();
    std::vector<std::byte> block(bytes * 16);
    for (size_t at = 0; at < samples.size();) {
      const uint64_t got = source.read(16, block.data());
      if (got == 0)
        return {Outcome::Failed, fmt::format("read() ends after {} of {}", quantity(at, "sample"), samples.size()),
                "it ends where next() does"};
      for (uint64_t i = 0; i < got && at < samples.size(); ++i, ++at)
        if (std::memcmp(block.data() + i * bytes, samples[at].bytes(), bytes) != 0)
          return {Outcome::Failed, fmt::format("sample {} of read() is not that of next()", at),
                  "both give the same samples"};
    }
    return {};
  });
  attempt(log, "gives the same samples by number", [&]() -> Finding {
    Source source = OneItem(item, settings).source();
    if (!source.can_read_at())
      return {Outcome::Noted, "it has no read_at()", "with one, shuffling needs no memory for blocks of samples"};
    std::vector<std::byte> one(source.sample_bytes());
    for (size_t i = samples.size(); i-- > 0;) {
      const uint64_t number = i;
      source.read_at(&number, 1, one.data());
      if (std::memcmp(one.data(), samples[i].bytes(), one.size()) != 0)
        return {Outcome::Failed, fmt::format("read_at({}) is not that sample", i),
                "numbers count from 0 within a pass"};
    }
    return {};
  });
  attempt(log, "is opened and closed without leaking", [&] {
    CheckSettings fewer = settings;
    fewer.calls = settings.calls / 100;
    return many_calls(fewer, [&] { OneItem(item, settings).source().next(); });
  });
}

void check_consumer(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  attempt(log, "opens, takes samples and finishes", [&]() -> Finding {
    std::optional<Sink> sink;
    try {
      sink = OneItem(item, settings).sink();
    } catch (const Error& e) {
      if (!settings.address.empty()) throw;
      return {Outcome::Noted, fmt::format("'{}:' does not open: {}", item->name, e.what()),
              "give an address to open: --address '" + item->name + ":...'"};
    }
    for (uint64_t i = 0; i < 100; ++i) sink->push(random_tensor({3}, settings.seed + i, -1, 1, DType::F32));
    sink->finish();
    return {Outcome::Passed, "100 samples of f32[3]", ""};
  });
}

}  // namespace harmonics::engine
