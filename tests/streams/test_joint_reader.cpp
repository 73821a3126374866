#include <algorithm>
#include <numeric>
#include <random>

#include <harmonics/philox.hpp>

#include "engine/streams/joint_reader.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using Gives = CountingProducer::Gives;

namespace {

// Like a live stream, unbounded although it counts to `size`.
class UnboundedProducer final : public CountingProducer {
 public:
  using CountingProducer::CountingProducer;
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    auto info = CountingProducer::describe();
    info->size = 0;
    return info;
  }
};

struct Group {
  std::vector<std::unique_ptr<Source>> sources;
  std::vector<JointMember> members;
  Group& add(const char* name, std::shared_ptr<Producer> producer, uint64_t per_group = 1) {
    sources.push_back(std::make_unique<Source>(name, std::move(producer)));
    members.push_back({sources.back().get(), per_group});
    return *this;
  }
  Group& add(const char* name, uint64_t n, uint64_t per_group = 1, Gives gives = Gives::Blocks) {
    return add(name, std::make_shared<CountingProducer>(n, gives), per_group);
  }
};

// The sample numbers of each member in one epoch, and the batch sizes.
struct Epoch {
  std::vector<std::vector<int>> given;
  std::vector<uint64_t> batches;
};
Epoch run(JointReader& reader, uint64_t batch) {
  Epoch epoch;
  epoch.given.resize(reader.members());
  std::vector<std::vector<int32_t>> buffers;
  std::vector<void*> to;
  for (size_t i = 0; i < reader.members(); ++i) {
    buffers.emplace_back(batch * reader.bytes(i) / 4 + 1, -7);
    to.push_back(buffers.back().data());
  }
  while (const uint64_t n = reader.read(batch, to.data())) {
    epoch.batches.push_back(n);
    for (size_t i = 0; i < buffers.size(); ++i) {
      for (size_t k = 0; k < n * reader.bytes(i) / 4; k += 2) {
        CHECK(buffers[i][k + 1] == buffers[i][k] + 1);
        epoch.given[i].push_back(buffers[i][k] / 10);
      }
      CHECK(buffers[i].back() == -7);
    }
  }
  CHECK(reader.read(batch, to.data()) == 0);
  return epoch;
}

JointOptions options(uint64_t shuffle = 0, uint64_t seed = 0) {
  JointOptions o;
  o.shuffle = shuffle;
  o.seed = seed;
  return o;
}

}  // namespace

TEST_CASE("streams in lock step give batches, the last one short") {
  for (const Gives gives : {Gives::Blocks, Gives::Singles, Gives::SinglesWithoutType}) {
    Group g;
    g.add("a", 10).add("b", 10, 1, gives);
    JointReader reader(g.members, {});
    CHECK(reader.size() == 10);
    CHECK(reader.bytes(0) == 8);
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      if (epoch) reader.begin(epoch);
      const Epoch e = run(reader, 4);
      CHECK(e.batches == std::vector<uint64_t>{4, 4, 2});
      CHECK(e.given[0] == range(0, 10));
      CHECK(e.given[1] == range(0, 10));
      CHECK(reader.position() == 10);
      CHECK(reader.epoch() == epoch);
    }
  }
}

TEST_CASE("a ratio joins groups of samples") {
  Group g;
  g.add("frames", 12, 3).add("labels", 8, 2);
  JointReader reader(g.members, {});
  CHECK(reader.size() == 4);
  CHECK(reader.bytes(0) == 24);
  const Epoch e = run(reader, 3);
  CHECK(e.batches == std::vector<uint64_t>{3, 1});
  CHECK(e.given[0] == range(0, 12));
  CHECK(e.given[1] == range(0, 8));
}

TEST_CASE("an incomplete last group is left over and counted") {
  Group g;
  g.add("frames", 14, 3).add("labels", 4);
  JointReader reader(g.members, {});
  CHECK(run(reader, 64).given[0] == range(0, 12));
  CHECK(reader.left_over(0) == 2);
  CHECK(reader.left_over(1) == 0);
}

TEST_CASE("a shuffled group shares one permutation, given by seed and epoch") {
  for (const uint64_t block : {2u, 7u, 64u, 1000u}) {
    Group g, h, other;
    g.add("a", 100).add("b", 200, 2, Gives::Singles);
    h.add("a", 100).add("b", 200, 2);
    other.add("a", 100).add("b", 200, 2);
    JointReader reader(g.members, options(block, 3)), same(h.members, options(block, 3)),
        different(other.members, options(block, 4));
    std::vector<int> last;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      for (JointReader* r : {&reader, &same, &different}) r->begin(epoch);
      const Epoch e = run(reader, 9);
      CHECK(e.given[0] == run(same, 30).given[0]);  // for any batch size
      CHECK(e.given[0] != run(different, 9).given[0]);
      CHECK(e.given[0] != last);
      last = e.given[0];
      for (size_t i = 0; i < 100; ++i) {
        CHECK(e.given[1][2 * i] == 2 * e.given[0][i]);
        CHECK(e.given[1][2 * i + 1] == 2 * e.given[0][i] + 1);
      }
      const auto length = static_cast<uint32_t>(std::min<uint64_t>(block, 100));
      std::vector<uint32_t> order(length);
      shuffled_order(order.data(), length, 3, epoch, 0);
      for (uint32_t i = 0; i < length; ++i) CHECK(e.given[0][i] == static_cast<int>(order[i]));
      std::sort(last.begin(), last.end());
      CHECK(last == range(0, 100));
      last = e.given[0];
    }
  }
}

TEST_CASE("shuffling by number equals shuffling in blocks, with skip, take, shard and repeat") {
  for (const uint64_t block : {2u, 7u, 1000u})
    for (const uint64_t skip : {0u, 5u})
      for (const uint64_t take : {0u, 31u})
        for (const uint64_t shards : {1u, 3u})
          for (const uint64_t repeat : {1u, 2u}) {
            JointOptions o = options(block, 3);
            o.skip = skip, o.take = take, o.shards = shards, o.shard = shards - 1, o.repeat = repeat, o.batch = 4;
            Group blocks, numbered;
            blocks.add("a", 50).add("b", 101, 2);
            const auto a = std::make_shared<CountingProducer>(50, Gives::ByNumber);
            numbered.add("a", a).add("b", 101, 2, Gives::ByNumber);
            JointReader one(blocks.members, o), two(numbered.members, o);
            for (const uint64_t epoch : {0u, 1u, 2u}) {
              one.begin(epoch);
              two.begin(epoch);
              const Epoch x = run(one, 9), y = run(two, 9);
              CHECK(x.given == y.given);
              CHECK(x.batches == y.batches);
              CHECK(one.left_over(1) == two.left_over(1));
            }
            CHECK(a->by_number == 3 * two.size());
            CHECK(a->at() == 0);
          }
}

TEST_CASE("one source that cannot be read by number makes the group keep blocks") {
  Group g;
  const auto a = std::make_shared<CountingProducer>(20, Gives::ByNumber);
  g.add("a", a).add("b", 20);
  JointReader reader(g.members, options(8, 1));
  const Epoch e = run(reader, 4);
  CHECK(e.given[0] == e.given[1]);
  CHECK(a->by_number == 0);
}

TEST_CASE("an epoch can begin at any position") {
  Group g, h;
  g.add("a", 50);
  h.add("a", 50);
  JointReader straight(g.members, options(16, 1)), jumped(h.members, options(16, 1));
  run(straight, 8);
  straight.begin(1);
  run(straight, 8);
  straight.begin(2);
  jumped.begin(2);
  CHECK(run(straight, 8).given == run(jumped, 8).given);
}

TEST_CASE("skip, take, shard and repeat act on joint samples") {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const int n = 1 + static_cast<int>(random() % 40);
    JointOptions o;
    o.skip = random() % 3 ? random() % 10 : 0;
    o.take = random() % 2 ? 1 + random() % 20 : 0;
    o.shards = 1 + random() % 4;
    o.shard = random() % o.shards;
    o.repeat = 1 + random() % 3;
    Group g;
    g.add("a", static_cast<uint64_t>(n))
        .add("b", static_cast<uint64_t>(2 * n), 2, random() % 2 ? Gives::Blocks : Gives::Singles);
    std::vector<int> once, expected;
    for (int i = static_cast<int>(o.skip), k = 0; i < n && (o.take == 0 || static_cast<uint64_t>(k) < o.take); ++i, ++k)
      if (static_cast<uint64_t>(k) % o.shards == o.shard) once.push_back(i);
    for (uint64_t r = 0; r < o.repeat; ++r) expected.insert(expected.end(), once.begin(), once.end());
    INFO("n " << n << " skip " << o.skip << " take " << o.take << " shard " << o.shard << "/" << o.shards << " repeat "
              << o.repeat);
    JointReader reader(g.members, o);
    CHECK(reader.size() == expected.size());
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      reader.begin(epoch);
      const Epoch e = run(reader, 1 + random() % 9);
      CHECK(e.given[0] == expected);
      for (size_t i = 0; i < expected.size(); ++i) CHECK(e.given[1].at(2 * i) == 2 * expected[i]);
    }
    if (expected.empty()) continue;
    o.shuffle = 2 + random() % 50;
    JointReader shuffled(g.members, o);
    shuffled.begin(0);
    auto given = run(shuffled, 5).given[0];
    std::sort(given.begin(), given.end());
    std::sort(expected.begin(), expected.end());
    CHECK(given == expected);
  }
}

// Does not announce its number of samples.
class UnsureProducer final : public CountingProducer {
 public:
  using CountingProducer::CountingProducer;
  std::size_t size() const override { return 0; }
};

TEST_CASE("streams of different lengths: a pass ends with the shortest, and reports the samples left over") {
  for (const Gives gives : {Gives::Blocks, Gives::Singles, Gives::ByNumber})
    for (const uint64_t block : {0u, 7u, 59u, 60u, 1000u})
      for (const uint64_t batch : {1u, 7u, 59u, 60u, 64u})
        for (const uint64_t repeat : {1u, 2u}) {
          INFO("block " << block << " batch " << batch << " repeat " << repeat);
          Group g;
          g.add("images", 70, 1, gives).add("labels", 59, 1, gives);
          JointOptions o = options(block, 3);
          o.repeat = repeat;
          o.batch = batch;
          JointReader reader(g.members, o);
          CHECK(reader.size() == 59 * repeat);
          for (uint64_t epoch = 0; epoch < 2; ++epoch) {
            reader.begin(epoch);
            Epoch e = run(reader, batch);
            CHECK(e.given[0] == e.given[1]);
            std::vector<int> all = range(0, 59);
            if (repeat == 2) all.insert(all.end(), all.begin(), all.end());
            std::sort(e.given[0].begin(), e.given[0].end());
            std::sort(all.begin(), all.end());
            CHECK(e.given[0] == all);
            REQUIRE(reader.left_over().size() == 1);
            CHECK(reader.left_over()[0].producer == "images");
            CHECK(reader.left_over()[0].samples == 11);
            CHECK(reader.left_over()[0].text ==
                  "producer 'images' had 11 samples left over at the end of a pass: 'labels' ended after 59");
          }
          // Starts in the middle of an epoch, like a resumed run.
          reader.seek(1, 30);
          const Epoch rest = run(reader, batch);
          reader.begin(1);
          const Epoch whole = run(reader, batch);
          CHECK(rest.given[0] == std::vector<int>(whole.given[0].begin() + 30, whole.given[0].end()));
          CHECK(reader.left_over(0) == 11);
        }
  // Groups of a ratio. Skipped samples, those of other shards, and unrequested samples do not count as left over.
  Group r;
  r.add("frames", 32, 3).add("labels", 8);
  JointReader frames(r.members, {});
  CHECK(run(frames, 64).given[1] == range(0, 8));
  CHECK(frames.left_over(0) == 8);
  CHECK(frames.left_over(1) == 0);
  JointOptions part;
  part.skip = 2, part.shard = 1, part.shards = 2;
  JointReader shard(r.members, part);
  shard.begin(0);
  CHECK(run(shard, 64).given[1] == std::vector<int>{3, 5, 7});
  CHECK(shard.left_over(0) == 8);
  JointOptions cut;
  cut.take = 8;
  JointReader taken(r.members, cut);
  taken.begin(0);
  run(taken, 64);
  CHECK(taken.left_over().empty());
}

TEST_CASE("streams of different lengths: a stream shorter than announced ends the pass") {
  for (const uint64_t batch : {1u, 7u, 10u, 59u, 60u, 64u}) {
    Group g;
    g.add("images", 60).add("labels", std::make_shared<UnsureProducer>(59, Gives::SinglesWithoutType));
    JointReader reader(g.members, {});
    CHECK(run(reader, batch).given[0] == range(0, 59));
    CHECK(reader.left_over(0) == 1);
    REQUIRE(reader.left_over().size() == 1);
    CHECK(reader.left_over()[0].text ==
          "producer 'images' had 1 sample left over at the end of a pass: 'labels' ended after 59");
  }
}

TEST_CASE("streams of different lengths are refused on request") {
  JointOptions o;
  o.refuse_unequal = true;
  Group g;
  g.add("images", 60).add("labels", 59);
  CHECK(refusal([&] { JointReader(g.members, o); }) ==
        "stream 'labels' ends after 59 samples, 'images' has 60 samples: they do not belong together; bind streams of "
        "one length, read fewer with take=59, or leave unpaired=refuse out: a pass then ends with the shortest");
  JointOptions cut = o;
  cut.take = 59;
  CHECK(run(*std::make_unique<JointReader>(g.members, cut), 64).given[0] == range(0, 59));
  Group r;
  r.add("frames", 30, 3).add("labels", 8);
  CHECK(refusal([&] { JointReader(r.members, o); })
            .find("stream 'labels' ends after 8 samples, 'frames' has 30 samples (10 groups of 3): they do not belong "
                  "together; ") == 0);
  for (const uint64_t batch : {1u, 7u, 10u, 59u, 60u, 64u}) {
    Group unsure;
    unsure.add("images", 60).add("labels", std::make_shared<UnsureProducer>(59, Gives::SinglesWithoutType));
    JointReader reader(unsure.members, o);
    CHECK(refusal([&] {
            run(reader, batch);
          }).find("stream 'labels' ends after 59 samples, 'images' has 60 samples: they do not belong together; ") ==
          0);
  }
}

TEST_CASE("a short last batch can be dropped") {
  for (const uint64_t block : {0u, 7u, 1000u}) {
    Group g, h;
    g.add("a", 20);
    h.add("a", 20);
    JointOptions o = options(block, 3);
    o.batch = 8;
    JointReader all(h.members, o);
    o.whole_batches = true;
    JointReader reader(g.members, o);
    CHECK(reader.size() == 16);
    for (uint64_t epoch = 0; epoch < 2; ++epoch) {
      reader.begin(epoch);
      all.begin(epoch);
      const std::vector<int> given = run(all, 8).given[0];
      CHECK(run(reader, 8).given[0] == std::vector<int>(given.begin(), given.begin() + 16));
    }
  }
}

TEST_CASE("a stream that violates its announcement is an error") {
  class Boastful final : public CountingProducer {
   public:
    using CountingProducer::CountingProducer;
    std::optional<StreamInfo> describe() override {
      auto info = CountingProducer::describe();
      info->size = 100;
      return info;
    }
  };
  Group g;
  g.add("a", std::make_shared<Boastful>(90));
  JointReader reader(g.members, {});
  CHECK(refusal([&] { run(reader, 64); }) == "stream 'a' ended after 90 samples, it had announced 100");
}

TEST_CASE("an unbounded stream joins a finite one") {
  Group g;
  g.add("live", std::make_shared<UnboundedProducer>(1000)).add("labels", 10);
  JointReader reader(g.members, {});
  CHECK(reader.size() == 10);
  CHECK(run(reader, 4).given[0] == range(0, 10));
  CHECK(reader.left_over(0) == 2);  // the third batch had already read them
  Group alone;
  alone.add("live", std::make_shared<UnboundedProducer>(1000));
  CHECK(JointReader(alone.members, {}).size() == 0);
  JointOptions take;
  take.take = 5;
  JointReader taken(alone.members, take);
  CHECK(taken.size() == 5);
  CHECK(run(taken, 3).given[0] == range(0, 5));
}

TEST_CASE("invalid options are refused") {
  Group g;
  g.add("a", 10);
  const auto refuse = [&](auto change) {
    JointOptions o;
    change(o);
    return refusal([&] { JointReader(g.members, o); });
  };
  CHECK(refuse([](JointOptions& o) { o.batch = 0; }) == "batch=0 makes empty batches; the minimum is 1");
  CHECK(refuse([](JointOptions& o) { o.repeat = 0; }) == "repeat=0 makes no pass; the minimum is 1");
  CHECK(refuse([](JointOptions& o) { o.shard = 2, o.shards = 2; }) ==
        "shard=2/2 names a shard that does not exist; shards are counted from 0");
  Group unbounded;
  unbounded.add("live", std::make_shared<UnboundedProducer>(1000));
  JointOptions huge;
  huge.shuffle = uint64_t{1} << 40;
  CHECK(refusal([&] { JointReader(unbounded.members, huge); }) ==
        "shuffle=1099511627776 needs more memory than is available; give a smaller block, for example shuffle=8192");
  CHECK(refuse([](JointOptions& o) { o.shuffle = uint64_t{1} << 40; }) == "");  // no more than the stream has
}
