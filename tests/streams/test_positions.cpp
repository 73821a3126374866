// Positions: with any wrappers around a source, a reader that returns to (epoch, index) gets the samples of an
// undisturbed reader from there on, whatever the prefetch depth.
#include <random>

#include <harmonics/async.hpp>
#include <harmonics/memory.hpp>

#include "engine/streams/joint_reader.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using Gives = CountingProducer::Gives;

namespace {

using Random = std::mt19937;
uint64_t below(Random& random, uint64_t n) { return random() % n; }

// A stack of wrappers, described so that it can be built again.
struct Recipe {
  uint64_t samples = 0;
  Gives gives = Gives::Blocks;
  bool sized = true;
  struct Layer {
    int kind;
    uint64_t a, b;
  };
  std::vector<Layer> layers;
  std::string text() const {
    static const char* const names[] = {"take", "skip", "shard", "repeat", "shuffle", "batch", "async"};
    std::string s = std::to_string(samples) + " samples " + std::to_string(static_cast<int>(gives)) +
                    (sized ? "" : " without size");
    for (const Layer& l : layers)
      s += std::string(" ") + names[l.kind] + "(" + std::to_string(l.a) + ", " + std::to_string(l.b) + ")";
    return s;
  }
};

// A source that does not announce the length of a pass.
class Unsized final : public CountingProducer {
 public:
  using CountingProducer::CountingProducer;
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    auto info = CountingProducer::describe();
    if (info) info->size = 0;
    return info;
  }
};

Recipe random_recipe(Random& random) {
  static const Gives ways[] = {Gives::Blocks, Gives::Singles, Gives::SinglesWithoutType};
  Recipe r{below(random, 40) + 1, ways[below(random, 3)], below(random, 4) != 0, {}};
  bool batched = false;
  for (uint64_t n = below(random, 5); n > 0; --n) {
    const int kind = static_cast<int>(below(random, 7));
    if (kind == 5 && batched) continue;
    batched = batched || kind == 5;
    r.layers.push_back({kind, below(random, 9) + 1, below(random, 3) + 1});
  }
  return r;
}

// `ahead` changes only the prefetch depth of async wrappers.
std::shared_ptr<Producer> build(const Recipe& r, uint64_t ahead) {
  std::shared_ptr<Producer> p;
  if (r.sized)
    p = std::make_shared<CountingProducer>(r.samples, r.gives);
  else
    p = std::make_shared<Unsized>(r.samples, r.gives);
  for (const auto& [kind, a, b] : r.layers) switch (kind) {
      case 0:
        p = std::make_shared<TakeProducer>(p, a * 3);
        break;
      case 1:
        p = std::make_shared<SkipProducer>(p, a);
        break;
      case 2:
        p = std::make_shared<ShardProducer>(p, a % b, b);
        break;
      case 3:
        p = std::make_shared<RepeatProducer>(p, b);
        break;
      case 4:
        p = std::make_shared<ShuffleProducer>(p, static_cast<uint32_t>(a), b);
        break;
      case 5:
        p = std::make_shared<BatchProducer>(p, b);
        break;
      default:
        p = std::make_shared<AsyncProducer>(p, a + ahead);
        break;
    }
  return p;
}

std::vector<std::vector<int32_t>> one_pass(Producer& p) { return drain<int32_t>(p); }

template <typename T>
std::vector<T> from(const std::vector<T>& all, uint64_t index) {
  return {all.begin() + static_cast<std::ptrdiff_t>(index), all.end()};
}

}  // namespace

TEST_CASE("any stack of wrappers returns to any position") {
  Random random(20260);
  for (int round = 0; round < 400; ++round) {
    const Recipe recipe = random_recipe(random);
    CAPTURE(round, recipe.text());
    const auto whole = build(recipe, 0);
    std::vector<std::vector<std::vector<int32_t>>> passes;
    for (int epoch = 0; epoch < 3; ++epoch) {
      if (epoch > 0) REQUIRE(whole->rewind());
      passes.push_back(one_pass(*whole));
    }
    const auto other = build(recipe, 7);
    for (int stop = 0; stop < 3; ++stop) {  // the same object, to any position
      const uint64_t epoch = below(random, 3), index = below(random, passes[epoch].size() + 1);
      CAPTURE(epoch, index);
      REQUIRE(other->seek(epoch, index));
      if (index == passes[epoch].size()) {
        REQUIRE(!other->next());
      } else if (below(random, 2)) {
        REQUIRE(one_pass(*other) == from(passes[epoch], index));
      } else {
        REQUIRE(other->next());  // stops in the middle
      }
      if (epoch + 1 < 3 && below(random, 2)) {
        REQUIRE(other->rewind());
        REQUIRE(one_pass(*other) == passes[epoch + 1]);
      }
    }
  }
}

TEST_CASE("the prefetch depth of an async wrapper at the end of a pass does not affect the next pass") {
  const auto after = [](uint64_t ahead) {
    auto repeat = std::make_shared<RepeatProducer>(
        std::make_shared<ShuffleProducer>(std::make_shared<CountingProducer>(7), 7, 3), 4);
    AsyncProducer async(repeat, ahead);
    for (int i = 0; i < 5; ++i) REQUIRE(async.next());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    REQUIRE(async.rewind());
    return one_pass(async);
  };
  CHECK(after(1) == after(100));
}

TEST_CASE("a source that cannot rewind reports it") {
  class Once final : public CountingProducer {
   public:
    using CountingProducer::CountingProducer;
    bool rewind() override { return false; }
  };
  for (const Gives gives : {Gives::Blocks, Gives::SinglesWithoutType}) {
    Source once("numbers", std::make_shared<Once>(5, gives));
    CHECK(once.cannot_seek() == "stream 'numbers' cannot be read a second time, its producer does not rewind");
    CHECK(once.next().data<int32_t>()[0] == 0);  // the query consumed no sample
    Source twice("numbers", std::make_shared<CountingProducer>(5, gives));
    CHECK(twice.cannot_seek().empty());
    CHECK(twice.next().data<int32_t>()[0] == 0);
  }
  ShuffleProducer around(std::make_shared<Once>(5), 2);
  CHECK(around.seek(0, 3));  // cached below the wrapper, because the source cannot rewind
}

TEST_CASE("a pass that became shorter is refused with both lengths") {
  Source source("numbers", std::make_shared<CountingProducer>(5, Gives::SinglesWithoutType));
  CHECK(refusal([&] { source.seek(0, 6); }) == "stream 'numbers': cannot resume at sample 6: the pass has 5 samples");
  JointReader reader({{&source, 1}}, JointOptions{});
  CHECK(refusal([&] { reader.seek(2, 9); }) == "cannot resume at sample 9: an epoch has 5");
}

TEST_CASE("joined streams return to any position, with every option of the group") {
  Random random(7);
  for (int round = 0; round < 600; ++round) {
    JointOptions o;
    o.batch = below(random, 5) + 1;
    o.shuffle = below(random, 3) ? below(random, 12) : 0;
    o.seed = below(random, 3);
    o.skip = below(random, 4);
    o.take = below(random, 2) ? below(random, 20) + 1 : 0;
    o.shards = below(random, 3) + 1;
    o.shard = below(random, o.shards);
    o.repeat = below(random, 3) + 1;
    const uint64_t groups = 6 + below(random, 30), per_group = below(random, 2) + 1;
    static const Gives ways[] = {Gives::Blocks, Gives::Singles, Gives::SinglesWithoutType, Gives::ByNumber};
    const Gives gives = ways[below(random, 4)];
    const bool sized = gives == Gives::ByNumber || below(random, 3) != 0;
    CAPTURE(round, o.batch, o.shuffle, o.skip, o.take, o.shard, o.shards, o.repeat, groups, per_group,
            static_cast<int>(gives), sized);
    const auto producer = [&](uint64_t n) -> std::shared_ptr<Producer> {
      if (sized) return std::make_shared<CountingProducer>(n, gives);
      return std::make_shared<Unsized>(n, gives);
    };
    const auto sources = [&] {
      std::vector<std::unique_ptr<Source>> s;
      s.push_back(std::make_unique<Source>("a", producer(groups)));
      s.push_back(std::make_unique<Source>("b", producer(groups * per_group)));
      return s;
    };
    const auto read_on = [&](JointReader& reader) {
      std::vector<std::vector<int32_t>> rows;
      std::vector<int32_t> a(2 * o.batch), b(2 * o.batch * per_group);
      void* to[] = {a.data(), b.data()};
      while (const uint64_t n = reader.read(to))
        for (uint64_t k = 0; k < n; ++k) {
          rows.push_back({a[2 * k]});
          for (uint64_t i = 0; i < per_group; ++i) rows.back().push_back(b[2 * (k * per_group + i)]);
        }
      return rows;
    };
    const auto first = sources(), second = sources();
    JointReader whole({{first[0].get(), 1}, {first[1].get(), per_group}}, o),
        other({{second[0].get(), 1}, {second[1].get(), per_group}}, o);
    std::vector<std::vector<std::vector<int32_t>>> epochs;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      whole.begin(epoch);
      epochs.push_back(read_on(whole));
    }
    for (int stop = 0; stop < 3; ++stop) {
      const uint64_t epoch = below(random, 3), index = below(random, epochs[epoch].size() + 1);
      CAPTURE(epoch, index);
      other.seek(epoch, index);
      REQUIRE(other.position() == index);
      REQUIRE(read_on(other) == from(epochs[epoch], index));
      if (epoch < 2) {
        other.begin(epoch + 1);
        REQUIRE(read_on(other) == epochs[epoch + 1]);
      }
    }
  }
}
