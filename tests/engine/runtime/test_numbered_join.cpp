// Streams with gaps, joined by number: compared with a simple model, and on edges with threads.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "engine/streams/joint_reader.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace std::chrono_literals;

namespace {

struct Numbered {
  uint64_t number, sender;
};

// A live stream of numbered samples of one i64: 1000 * sender + number.
class NumberedProducer : public Producer {
 public:
  explicit NumberedProducer(std::vector<Numbered> samples, size_t from = 0) : samples_(std::move(samples)), at_(from) {}
  HTensor next() override {
    if (at_ == samples_.size()) return {};
    const Numbered& n = samples_[at_++];
    const int64_t value = static_cast<int64_t>(1000000 * n.sender + n.number);
    return HTensor(DType::I64, {}, &value);
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.dtype = DType::I64;
    info.live = true;
    return info;
  }
  bool numbers(uint64_t n, SampleNumber* to) override {
    if (n > 1) throw Error(ErrorKind::Internal, "more numbers than next() gave");
    if (n == 1) *to = {samples_[at_ - 1].number, samples_[at_ - 1].sender};
    return true;
  }

 private:
  std::vector<Numbered> samples_;
  size_t at_;
};

Source source_of(const std::string& name, std::vector<Numbered> samples, size_t from = 0) {
  return Source(name, std::make_shared<NumberedProducer>(std::move(samples), from));
}

struct Joined {
  std::vector<std::vector<std::vector<int64_t>>> groups;  // by group, by stream
  std::vector<uint64_t> reads;                            // by stream, at the end
  std::vector<JoinCounts> counts;
  std::vector<uint64_t> waiting;
};

Joined join(std::vector<Source>& sources, const std::vector<uint64_t>& per_group, const JoinRules& rules,
            uint64_t batch, uint64_t most = UINT64_MAX) {
  std::vector<NumberedJoin::Member> members;
  for (size_t i = 0; i < sources.size(); ++i) members.push_back({&sources[i], per_group[i], std::nullopt});
  NumberedJoin join(members, rules, batch);
  join.restart();
  Joined result;
  std::vector<std::vector<int64_t>> to;
  for (const uint64_t p : per_group) to.emplace_back(batch * p);
  while (result.groups.size() < most) {
    const uint64_t wanted = std::min<uint64_t>(batch, most - result.groups.size());
    std::vector<std::byte*> pointers;
    for (auto& t : to) pointers.push_back(reinterpret_cast<std::byte*>(t.data()));
    const uint64_t got = join.read(wanted, pointers.data());
    for (uint64_t g = 0; g < got; ++g) {
      auto& group = result.groups.emplace_back();
      for (size_t i = 0; i < sources.size(); ++i)
        group.emplace_back(to[i].begin() + static_cast<std::ptrdiff_t>(g * per_group[i]),
                           to[i].begin() + static_cast<std::ptrdiff_t>((g + 1) * per_group[i]));
    }
    if (got < wanted) break;
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    result.reads.push_back(join.reads(i));
    result.counts.push_back(join.counts(i));
    result.waiting.push_back(join.waiting(i));
  }
  return result;
}

// Returns the groups of streams with one sender each, in order, as long as every stream has a sample of the group or a
// later one.
std::vector<std::vector<std::vector<int64_t>>> expected(const std::vector<std::vector<uint64_t>>& streams,
                                                        const std::vector<uint64_t>& per_group, Unpaired unpaired) {
  uint64_t end = UINT64_MAX;
  std::map<uint64_t, std::vector<std::map<uint64_t, int64_t>>> groups;  // by group, stream and position
  for (size_t i = 0; i < streams.size(); ++i) {
    end = std::min(end, streams[i].empty() ? 0 : streams[i].back() / per_group[i] + 1);
    for (const uint64_t n : streams[i]) {
      auto& group = groups[n / per_group[i]];
      group.resize(streams.size());
      group[i][n % per_group[i]] = static_cast<int64_t>(n);
    }
  }
  std::vector<std::vector<std::vector<int64_t>>> all;
  std::vector<std::optional<int64_t>> last(streams.size());
  for (const auto& [number, parts] : groups) {
    if (number >= end) break;
    bool whole = true, filled = true;
    for (size_t i = 0; i < streams.size(); ++i) {
      whole = whole && parts[i].size() == per_group[i];
      filled = filled && (last[i] || parts[i].count(0) > 0);
    }
    std::vector<std::vector<int64_t>> group(streams.size());
    for (size_t i = 0; i < streams.size(); ++i)
      for (uint64_t place = 0; place < per_group[i]; ++place) {
        if (const auto at = parts[i].find(place); at != parts[i].end()) last[i] = at->second;
        group[i].push_back(last[i].value_or(-1));
      }
    if (whole || (unpaired == Unpaired::last && filled)) all.push_back(group);
  }
  return all;
}

std::vector<Numbered> of_sender(const std::vector<uint64_t>& numbers, uint64_t sender = 0) {
  std::vector<Numbered> samples;
  for (const uint64_t n : numbers) samples.push_back({n, sender});
  return samples;
}

}  // namespace

TEST_CASE("join: samples that a cut run had not read are not counted as missing") {
  for (const Unpaired unpaired : {Unpaired::drop, Unpaired::last, Unpaired::stop})
    for (const bool cut : {true, false}) {
      std::vector<Source> sources;
      sources.push_back(source_of("a", {{0, 1}, {1, 1}, {2, 1}}));  // cancelled during its second group
      sources.push_back(source_of("b", {{0, 2}, {1, 2}, {2, 2}, {3, 2}}));
      std::vector<std::string> left_out;
      JoinRules rules;
      rules.by_number = true;
      rules.unpaired = unpaired;
      rules.on_left_out = [&](const LeftOut& sample) { left_out.push_back(sample.why); };
      NumberedJoin join({{&sources[0], 2, std::nullopt}, {&sources[1], 2, std::nullopt}}, rules, 4);
      join.restart();
      if (cut) join.cut();
      std::vector<int64_t> a(8), b(8);
      std::byte* to[] = {reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data())};
      if (!cut && unpaired == Unpaired::stop) {
        CHECK_THROWS_AS(join.read(4, to), Error);
        continue;
      }
      CHECK(join.read(4, to) == (!cut && unpaired == Unpaired::last ? 2 : 1));
      CHECK(left_out.size() == (!cut && unpaired == Unpaired::drop ? 3 : 0));
      if (cut) CHECK((join.reads(0) == 2 && join.reads(1) == 2));
    }
}

TEST_CASE("joined by number: equals the model for gaps, ratios and batches") {
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const auto draw = [&](uint64_t below) { return random() % below; };
    const size_t n = 1 + draw(3);
    const auto unpaired = draw(2) == 0 ? Unpaired::drop : Unpaired::last;
    std::vector<uint64_t> per_group;
    std::vector<std::vector<uint64_t>> streams(n);
    for (size_t i = 0; i < n; ++i) {
      per_group.push_back(1 + draw(3));
      const uint64_t begin = draw(20), end = begin + draw(200), gaps = draw(4);
      for (uint64_t k = begin; k < end; ++k)
        if (gaps == 0 || draw(10) >= gaps * gaps / 2) streams[i].push_back(k);
    }
    const auto wanted = expected(streams, per_group, unpaired);
    JoinRules rules;
    rules.by_number = true;
    rules.unpaired = unpaired;
    std::map<std::string, uint64_t> left_out;
    rules.on_left_out = [&](const LeftOut& out) {
      int64_t value = 0;
      std::memcpy(&value, out.bytes, sizeof value);
      CHECK(static_cast<uint64_t>(value) == out.mark.number.number);
      ++left_out[out.source.name()];
    };
    std::vector<Source> sources;
    for (size_t i = 0; i < n; ++i) sources.push_back(source_of("s" + std::to_string(i), of_sender(streams[i])));
    const uint64_t batch = 1 + draw(17);
    const Joined got = join(sources, per_group, rules, batch);
    REQUIRE(got.groups == wanted);
    for (size_t i = 0; i < n; ++i) {
      const uint64_t given = got.groups.size() * per_group[i] - got.counts[i].filled, read = sources[i].position();
      CHECK(given + got.counts[i].unpaired + got.counts[i].late + got.waiting[i] == read);
      CHECK(got.counts[i].late == 0);
      CHECK(left_out["s" + std::to_string(i)] == got.counts[i].unpaired);
    }
    if (unpaired != Unpaired::drop) continue;
    // Resuming at any position gives the same groups.
    const uint64_t part = wanted.empty() ? 0 : draw(wanted.size());
    rules.on_left_out = nullptr;
    std::vector<Source> again, rest;
    for (size_t i = 0; i < n; ++i) again.push_back(source_of("s", of_sender(streams[i])));
    const Joined first = join(again, per_group, rules, batch, part);
    REQUIRE(first.groups.size() == part);
    for (size_t i = 0; i < n; ++i) rest.push_back(source_of("s", of_sender(streams[i]), first.reads[i]));
    const Joined second = join(rest, per_group, rules, batch);
    std::vector<std::vector<std::vector<int64_t>>> both = first.groups;
    both.insert(both.end(), second.groups.begin(), second.groups.end());
    CHECK(both == wanted);
  }
}

TEST_CASE("joined by number: unpaired=stop names the missing sample") {
  JoinRules rules;
  rules.by_number = true;
  rules.unpaired = Unpaired::stop;
  std::vector<Source> sources;
  sources.push_back(source_of("image", of_sender({0, 1, 2, 3})));
  sources.push_back(source_of("label", of_sender({0, 1, 3})));
  try {
    join(sources, {1, 1}, rules, 2);
    FAIL("it did not stop");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Stream);
    CHECK(std::string(e.what()) == "sample 2 of 'image' has no partner in 'label'");
  }
}

TEST_CASE("joined by number: a sender that restarts its numbers waits for the others") {
  JoinRules rules;
  rules.by_number = true;
  const auto two = [](std::vector<uint64_t> first, std::vector<uint64_t> second) {
    std::vector<Numbered> all = of_sender(first, 1);
    const std::vector<Numbered> more = of_sender(second, 2);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  std::vector<Source> sources;
  sources.push_back(source_of("x", two({0, 1, 2, 3, 4}, {0, 1, 2})));
  sources.push_back(source_of("y", two({0, 1, 2, 3, 4, 5, 6}, {1, 2, 3})));
  const Joined got = join(sources, {1, 1}, rules, 3);
  std::vector<int64_t> xs, ys;
  for (const auto& group : got.groups) xs.push_back(group[0][0]), ys.push_back(group[1][0]);
  CHECK(xs == std::vector<int64_t>{1000000, 1000001, 1000002, 1000003, 1000004, 2000001, 2000002});
  CHECK(ys == xs);
  CHECK(got.counts[1].unpaired == 2);  // 5 and 6 of the first sender
  CHECK(got.counts[0].unpaired == 1);  // 0 of the second sender
}

TEST_CASE("joined by number: samples of a replaced sender are late") {
  JoinRules rules;
  rules.by_number = true;
  std::vector<Source> sources;
  sources.push_back(source_of("x", {{0, 1}, {1, 1}, {0, 2}, {2, 1}, {1, 2}, {1, 2}}));
  sources.push_back(source_of("y", {{0, 1}, {1, 1}, {0, 2}, {1, 2}, {2, 2}}));
  const Joined got = join(sources, {1, 1}, rules, 1);
  CHECK(got.groups.size() == 4);
  CHECK(got.counts[0].late == 2);  // 2 of the first sender, and a repeated one
}

TEST_CASE("joined by number: samples without numbers are refused with a remedy") {
  class Plain final : public NumberedProducer {
   public:
    using NumberedProducer::NumberedProducer;
    bool numbers(uint64_t, SampleNumber*) override { return false; }
  };
  std::vector<Source> sources;
  sources.emplace_back("x", std::make_shared<Plain>(of_sender({0})));
  JoinRules rules;
  rules.by_number = true;
  CHECK_THROWS_WITH(join(sources, {1}, rules, 1), "stream 'x' cannot be joined by number: its samples have none");
}

namespace {

// Delivers its samples at once or when allowed, and can be cancelled.
class PacedProducer final : public Producer {
 public:
  explicit PacedProducer(uint64_t most) : most_(most) {}
  HTensor next() override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return at_ < allowed_ || cancelled_ || at_ == most_; });
    if (cancelled_ || at_ == most_) return {};
    const auto value = static_cast<int64_t>(at_++);
    return HTensor(DType::I64, {}, &value);
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.dtype = DType::I64;
    info.live = true;
    return info;
  }
  bool cancel() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
    return true;
  }
  void allow(uint64_t until) {
    const std::lock_guard<std::mutex> lock(mutex_);
    allowed_ = until;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t most_, at_ = 0, allowed_ = 0;
  bool cancelled_ = false;
};

template <typename Until>
bool wait_for(Until until) {
  for (int i = 0; i < 20000 && !until(); ++i) std::this_thread::sleep_for(5ms);
  return until();
}

}  // namespace

TEST_CASE("edge: block keeps all samples, drop_oldest and latest keep and count the newest") {
  const auto policy = GENERATE(EdgePolicy::block, EdgePolicy::drop_oldest, EdgePolicy::latest);
  const auto producer = std::make_shared<PacedProducer>(1000);
  Source source("x", producer);
  Edge edge(source, {policy, 100 * sizeof(int64_t)}, 10);
  producer->allow(1);
  std::vector<int64_t> values(1000);
  std::vector<SampleMark> marks(1000);
  auto* const to = reinterpret_cast<std::byte*>(values.data());
  REQUIRE(edge.read(1, to, marks.data(), std::nullopt) == 1);
  producer->allow(1000);
  const uint64_t room = policy == EdgePolicy::latest ? 10 : 100;
  REQUIRE(wait_for(
      [&] { return edge.waiting() == room && (policy == EdgePolicy::block || edge.dropped() == 999 - room); }));
  std::vector<int64_t> got{values[0]};
  while (const uint64_t n = edge.read(7, to, marks.data(), std::nullopt))
    for (uint64_t i = 0; i < n; ++i) {
      CHECK(marks[i].index == static_cast<uint64_t>(values[i]));
      got.push_back(values[i]);
    }
  CHECK(edge.ended());
  CHECK(std::is_sorted(got.begin(), got.end()));
  CHECK(std::adjacent_find(got.begin(), got.end()) == got.end());
  CHECK(got.back() == 999);
  CHECK(got.size() + edge.dropped() == 1000);
  if (policy == EdgePolicy::block)
    CHECK(edge.dropped() == 0);
  else
    CHECK(got.size() == 1 + room);
}

TEST_CASE("edge: latest holds the samples of one step when the step size changes") {
  const auto producer = std::make_shared<PacedProducer>(1000);
  Source source("x", producer);
  Edge edge(source, {EdgePolicy::latest, 50 * sizeof(int64_t)}, 10);
  producer->allow(1);
  std::vector<int64_t> values(100);
  std::vector<SampleMark> marks(100);
  auto* const to = reinterpret_cast<std::byte*>(values.data());
  REQUIRE(edge.read(1, to, marks.data(), std::nullopt) == 1);
  producer->allow(40);
  REQUIRE(wait_for([&] { return edge.waiting() + edge.dropped() == 39; }));
  edge.set_step(4);
  CHECK(edge.waiting() == 4);
  CHECK(edge.dropped() == 35);
  edge.set_step(20);
  producer->allow(45);
  REQUIRE(wait_for([&] { return edge.waiting() == 9; }));
  edge.set_step(200);  // hold= limits it to 50
  producer->allow(1000);
  REQUIRE(wait_for([&] { return edge.waiting() + edge.dropped() == 999; }));
  REQUIRE(edge.read(100, to, marks.data(), std::nullopt) == 50);
  for (int64_t i = 0; i < 50; ++i) {
    CHECK(values[static_cast<size_t>(i)] == 950 + i);
    CHECK(marks[static_cast<size_t>(i)].index == static_cast<uint64_t>(950 + i));
  }
}

TEST_CASE("edge: a waiting read ends when the edge is closed") {
  const auto producer = std::make_shared<PacedProducer>(1000);
  Source source("x", producer);
  int64_t value = 0;
  SampleMark mark;
  const auto begin = Edge::Clock::now();
  {
    Edge edge(source, {}, 1);
    CHECK(edge.read(1, reinterpret_cast<std::byte*>(&value), &mark, Edge::Clock::now() + 30ms) == 0);
    CHECK(!edge.ended());
  }
  CHECK(Edge::Clock::now() - begin < 5s);
}

TEST_CASE("late=: an overdue sample is left out and counted as late when it arrives") {
  const auto unpaired = GENERATE(Unpaired::drop, Unpaired::last);
  const auto fast = std::make_shared<PacedProducer>(100), slow = std::make_shared<PacedProducer>(100);
  Source x("x", fast), y("y", slow);
  JoinRules rules;
  rules.unpaired = unpaired;
  rules.late = 50ms;
  std::vector<std::string> out;
  rules.on_left_out = [&](const LeftOut& left) { out.push_back(left.source.name() + " " + left.why); };
  NumberedJoin join({{&x, 1, std::nullopt}, {&y, 1, std::nullopt}}, rules, 4);
  join.restart();
  int64_t xs[4], ys[4];
  std::byte* const to[] = {reinterpret_cast<std::byte*>(xs), reinterpret_cast<std::byte*>(ys)};
  fast->allow(2), slow->allow(1);
  REQUIRE(join.read(1, to) == 1);
  CHECK((xs[0] == 0 && ys[0] == 0));
  // Sample 1 of x has no partner; then both streams have 2.
  std::thread later([&] {
    REQUIRE(wait_for(
        [&] { return unpaired == Unpaired::drop ? join.counts(0).unpaired == 1 : join.counts(1).filled == 1; }));
    slow->allow(3), fast->allow(3);
  });
  if (unpaired == Unpaired::last) {
    REQUIRE(join.read(1, to) == 1);
    CHECK((xs[0] == 1 && ys[0] == 0));
  }
  REQUIRE(join.read(1, to) == 1);
  later.join();
  CHECK((xs[0] == 2 && ys[0] == 2));
  CHECK(join.counts(1).late == 1);
  CHECK(out == (unpaired == Unpaired::drop ? std::vector<std::string>{"x unpaired", "y late"}
                                           : std::vector<std::string>{"y late"}));
  CHECK(join.reads(0) == 3);
  CHECK(join.reads(1) == 3);
}
