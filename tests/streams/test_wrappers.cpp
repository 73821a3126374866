#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include <harmonics/async.hpp>
#include <harmonics/augment.hpp>
#include <harmonics/cache.hpp>
#include <harmonics/memory.hpp>
#include <harmonics/select.hpp>

#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using Gives = CountingProducer::Gives;

namespace {

const Gives every_way[] = {Gives::Blocks, Gives::Singles, Gives::SinglesWithoutType};

std::shared_ptr<CountingProducer> counting(uint64_t n, Gives gives = Gives::Blocks) {
  return std::make_shared<CountingProducer>(n, gives);
}

// Returns the sample numbers of a pass, read one by one and, after a rewind, in blocks. Both must agree if
// `twice_the_same`.
std::vector<int> pass(Producer& p) { return numbers(drain<int32_t>(p)); }
std::vector<int> pass_in_blocks(Producer& p, uint64_t chunk) { return numbers(drain_blocks<int32_t>(p, chunk)); }

template <typename Make>
void check_everywhere(Make make, const std::vector<int>& expected) {
  for (const Gives gives : every_way) {
    const auto p = make(gives);
    CHECK(pass(*p) == expected);
    CHECK(p->size() == expected.size());
    CHECK(!p->next());
    REQUIRE(p->rewind());
    CHECK(pass(*p) == expected);
    REQUIRE(p->rewind());
    int32_t one[2];
    if (gives != Gives::Blocks || p->read(0, one) < 0) continue;
    for (const uint64_t chunk : {1, 3, 100}) {
      CHECK(pass_in_blocks(*p, chunk) == expected);
      REQUIRE(p->rewind());
    }
    CHECK(p->describe()->size == expected.size());
  }
}

// Throws after `good` samples; sleeps a little before each.
class FailingProducer final : public CountingProducer {
 public:
  FailingProducer(uint64_t good, Gives gives) : CountingProducer(1000, gives), good_(good) {}
  HTensor next() override { return check(1), CountingProducer::next(); }
  int64_t read(uint64_t n, void* to) override { return check(n), CountingProducer::read(n, to); }

 private:
  void check(uint64_t n) const {
    if (n && at() + n > good_) throw Error(ErrorKind::Stream, "the disk is on fire");
  }
  uint64_t good_;
};

class OnceProducer final : public CountingProducer {
 public:
  using CountingProducer::CountingProducer;
  bool rewind() override { return false; }
};

// A live stream of CountingProducer's samples as f32.
class LiveFloats : public CountingProducer {
 public:
  using CountingProducer::CountingProducer;
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    auto info = CountingProducer::describe();
    info->live = true;
    info->dtype = DType::F32;  // the same bytes
    return info;
  }
  HTensor next() override {
    const HTensor x = CountingProducer::next();
    return x ? HTensor(DType::F32, x.shape(), x.bytes()) : HTensor();
  }
};

}  // namespace

TEST_CASE("take, skip, shard and repeat") {
  check_everywhere([](Gives g) { return std::make_shared<TakeProducer>(counting(10, g), 4); }, range(0, 4));
  check_everywhere([](Gives g) { return std::make_shared<TakeProducer>(counting(3, g), 4); }, range(0, 3));
  check_everywhere([](Gives g) { return std::make_shared<SkipProducer>(counting(10, g), 4); }, range(4, 10));
  check_everywhere([](Gives g) { return std::make_shared<SkipProducer>(counting(4, g), 4); }, {});
  check_everywhere([](Gives g) { return std::make_shared<ShardProducer>(counting(10, g), 1, 4); }, range(1, 10, 4));
  check_everywhere([](Gives g) { return std::make_shared<ShardProducer>(counting(10, g), 3, 4); }, range(3, 10, 4));
  check_everywhere([](Gives g) { return std::make_shared<ShardProducer>(counting(10, g), 0, 1); }, range(0, 10));
  check_everywhere([](Gives g) { return std::make_shared<RepeatProducer>(counting(3, g), 2); }, {0, 1, 2, 0, 1, 2});
  check_everywhere(
      [](Gives g) { return std::make_shared<TakeProducer>(std::make_shared<RepeatProducer>(counting(3, g), 0), 5); },
      {0, 1, 2, 0, 1});
  check_everywhere(
      [](Gives g) { return std::make_shared<SkipProducer>(std::make_shared<ShardProducer>(counting(20, g), 1, 3), 2); },
      range(7, 20, 3));
  CHECK(refusal([] { ShardProducer(counting(1), 2, 2); }) == "shard 2/2 does not exist; shards are counted from 0");
  CHECK(refusal([] { TakeProducer(nullptr, 2); }) == "a wrapper needs a producer to wrap");
  RepeatProducer once(std::make_shared<OnceProducer>(2), 2);
  CHECK(pass(once) == std::vector<int>{0, 1, 0, 1});  // cached below the wrapper
  RepeatProducer nothing(counting(0), 0);
  CHECK(!nothing.next());
}

TEST_CASE("batches stack samples along a new axis") {
  BatchProducer batches(counting(7), 3);
  CHECK(batches.size() == 3);
  CHECK(!batches.describe());  // the last one is shorter
  CHECK(batches.next().shape() == Shape{3, 2});
  const HTensor second = batches.next();
  CHECK(second.data<int32_t>()[5] == 51);
  CHECK(batches.next().shape() == Shape{1, 2});
  CHECK(!batches.next());
  for (const Gives gives : every_way) {
    BatchProducer even(counting(6, gives), 3), dropped(counting(7, gives), 3, BatchProducer::Last::Dropped);
    CHECK(drain<int32_t>(even) == drain<int32_t>(dropped));
    CHECK(even.size() == 2);
    CHECK(dropped.size() == 2);
    if (gives == Gives::SinglesWithoutType) continue;
    CHECK(even.describe()->sample == Shape{3, 2});
    CHECK(dropped.describe()->size == 2);
  }
  BatchProducer blocks(counting(7), 3, BatchProducer::Last::Dropped);
  CHECK(drain_blocks<int32_t>(blocks, 2).size() == 2);
  BatchProducer mixed(
      std::make_shared<MemoryProducer>(std::vector<HTensor>{HTensor(DType::F32, {2}), HTensor(DType::F32, {3})}), 2);
  CHECK(refusal([&] { mixed.next(); }) ==
        "batch: samples of shapes [2] and [3] cannot be in one batch; all must have one type");
}

TEST_CASE("shuffling permutes blocks, differently in each epoch, equally for equal seeds") {
  for (const Gives gives : every_way)
    for (const uint32_t block : {1u, 2u, 7u, 100u, 1000u}) {
      ShuffleProducer a(counting(100, gives), block, 3), b(counting(100, gives), block, 3),
          other(counting(100, gives), block, 4);
      const auto first = pass(a);
      CHECK(first == pass(b));
      CHECK((block == 1 || first != pass(other)));
      REQUIRE(a.rewind());
      REQUIRE(b.rewind());
      const auto second = pass(a);
      CHECK(second == pass(b));
      CHECK((block == 1 || second != first));
      for (size_t start = 0; start < 100; start += block) {
        const size_t end = std::min<size_t>(start + block, 100);
        std::vector<int> part(first.begin() + static_cast<std::ptrdiff_t>(start),
                              first.begin() + static_cast<std::ptrdiff_t>(end));
        std::sort(part.begin(), part.end());
        CHECK(part == range(static_cast<int>(start), static_cast<int>(end)));
      }
      if (gives != Gives::Blocks) continue;
      ShuffleProducer blocks(counting(100), block, 3);
      CHECK(pass_in_blocks(blocks, 9) == first);
      CHECK(blocks.describe()->size == 100);
    }
  CHECK(refusal([] { ShuffleProducer(counting(1), 0); }) == "shuffle: a block holds at least 1 sample");
}

TEST_CASE("async delivers everything in order, for any speed of reader and source") {
  std::mt19937 random(5);
  for (const Gives gives : every_way)
    for (const size_t capacity : {1u, 2u, 3u, 8u, 100u}) {
      AsyncProducer async(counting(500, gives), capacity);
      CHECK(async.size() == 500);
      CHECK(pass(async) == range(0, 500));
      CHECK(!async.next());
      REQUIRE(async.rewind());
      CHECK(pass(async) == range(0, 500));
      if (gives != Gives::Blocks) continue;
      for (const uint64_t chunk : {1, 7, 64, 600}) {
        REQUIRE(async.rewind());
        CHECK(pass_in_blocks(async, chunk) == range(0, 500));
      }
      for (int i = 0; i < 20; ++i) {  // stopped in the middle
        REQUIRE(async.rewind());
        for (uint32_t k = random() % 50; k > 0; --k) REQUIRE(async.next());
      }
    }
  CHECK(refusal([] { AsyncProducer(counting(1), 0); }) == "async: at least 1 sample waits");
}

TEST_CASE("async reads no further than its queue") {
  for (const Gives gives : every_way) {
    const auto source = counting(1000, gives);
    AsyncProducer async(source, 4);
    CHECK(source->at() == 0);  // nothing is read before the first request
    REQUIRE(async.next());
    for (int i = 0; i < 20000 && source->at() < 5; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(source->at() >= 5);
    CHECK(source->at() <= 6);  // one may be in transit to the queue
  }
}

TEST_CASE("async passes on the source's exception, after the samples before it") {
  for (const Gives gives : every_way) {
    AsyncProducer async(std::make_shared<FailingProducer>(36, gives),
                        3);  // read one by one: a block that fails is lost whole
    for (int i = 0; i < 36; ++i) REQUIRE(async.next());
    CHECK(refusal([&] { async.next(); }) == "the disk is on fire");
    CHECK(refusal([&] { async.next(); }) == "the disk is on fire");
    REQUIRE(async.rewind());
    CHECK(async.next().data<int32_t>()[0] == 0);
  }
  AsyncProducer blocks(std::make_shared<FailingProducer>(10, Gives::Blocks), 4);
  std::vector<int32_t> to(40);
  CHECK(blocks.read(10, to.data()) == 10);
  CHECK(refusal([&] { blocks.read(1, to.data()); }) == "the disk is on fire");
}

TEST_CASE("an unread async producer ends cleanly") {
  for (int i = 0; i < 200; ++i) {
    AsyncProducer async(counting(100000, every_way[i % 3]), 2);
    if (i % 2) REQUIRE(async.next());
  }
}

TEST_CASE("wrappers can be stacked") {
  const auto make = [](Gives g) {
    auto shuffled = std::make_shared<ShuffleProducer>(std::make_shared<TakeProducer>(counting(200, g), 120), 32, 9);
    return std::make_shared<AsyncProducer>(std::make_shared<RepeatProducer>(shuffled, 2), 5);
  };
  const auto expected = pass(*make(Gives::Blocks));
  CHECK(expected.size() == 240);
  CHECK(std::set<int>(expected.begin(), expected.end()).size() == 120);
  for (const Gives gives : every_way) CHECK(pass(*make(gives)) == expected);
  CHECK(pass_in_blocks(*make(Gives::Blocks), 11) == expected);
}

TEST_CASE("a wrapper rewinds without its producer's help, and shuffles every pass differently") {
  for (const Gives gives : every_way) {
    ShuffleProducer once(std::make_shared<OnceProducer>(40, gives), 16, 3), rewinds(counting(40, gives), 16, 3);
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      REQUIRE(once.seek(epoch, 0));
      REQUIRE(rewinds.seek(epoch, 0));
      CHECK(pass(once) == pass(rewinds));
    }
    REQUIRE(once.seek(1, 17));
    REQUIRE(rewinds.seek(1, 17));
    CHECK(pass(once) == pass(rewinds));
  }
  // A cache limit below the pass allows one pass only.
  KnownProducer small(std::make_shared<OnceProducer>(40), KnownProducer::Look::Finite, 100);
  REQUIRE(small.seek(0, 0));
  CHECK(pass(small) == range(0, 40));
  CHECK(refusal([&] { small.seek(1, 0); }).find("its 40 samples take more than the 100 bytes that are cached") !=
        std::string::npos);
}

TEST_CASE("wrappers that need the type of the samples read the first one") {
  const float values[] = {1, 2, 3, 4};
  const std::vector<HTensor> pictures(3, HTensor(DType::F32, Shape{2, 2}, values));
  AugmentProducer augmented(std::make_shared<MemoryProducer>(pictures), Augmentation().flip());
  CHECK(drain<float>(augmented).size() == 3);
  CacheProducer cached(std::make_shared<MemoryProducer>(pictures), 1 << 10);
  CHECK(drain<float>(cached).size() == 3);
  CHECK(refusal([&] {
          AugmentProducer none(std::make_shared<MemoryProducer>(std::vector<HTensor>{}), Augmentation().flip());
        }) == "augment: the producer has no sample");
}

TEST_CASE("samples keep their senders' numbers through wrappers that take them one by one") {
  class Numbered final : public LiveFloats {  // its sender's numbers are multiples of three
   public:
    using LiveFloats::LiveFloats;
    bool numbers(uint64_t n, SampleNumber* to) override {
      for (uint64_t i = 0; i < n; ++i) to[i] = {3 * (at() - n + i), 7};
      return true;
    }
  };
  for (const Gives gives : {Gives::Blocks, Gives::Singles})
    for (const bool ahead : {true, false}) {
      std::shared_ptr<Producer> p = std::make_shared<Numbered>(50, gives);
      if (ahead)
        p = std::make_shared<AsyncProducer>(p, 4);
      else
        p = std::make_shared<AugmentProducer>(p, Augmentation().noise(0));
      REQUIRE(p->numbers(0, nullptr));
      std::vector<float> block(20);
      std::vector<SampleNumber> numbers(10);
      uint64_t at = 0;
      const int64_t got = p->read(10, block.data());
      if (got == 10) {
        REQUIRE(p->numbers(10, numbers.data()));
        for (; at < 10; ++at) CHECK(numbers[at].number == 3 * at);
      }
      while (p->next()) {
        REQUIRE(p->numbers(1, numbers.data()));
        CHECK(numbers[0].number == 3 * at++);
        CHECK(numbers[0].sender == 7);
      }
      CHECK(at == 50);
    }
}

TEST_CASE("numbers that a producer announces and then does not give are not replaced by zeros") {
  class Forgetful final : public LiveFloats {
   public:
    using LiveFloats::LiveFloats;
    bool numbers(uint64_t n, SampleNumber* to) override {
      for (uint64_t i = 0; i < n; ++i) to[i] = {at() - n + i, 7};
      return at() != 3;
    }
  };
  for (const Gives gives : {Gives::Blocks, Gives::Singles}) {
    AugmentProducer noisy(std::make_shared<Forgetful>(5, gives), Augmentation().noise(0));
    REQUIRE(noisy.numbers(0, nullptr));
    SampleNumber number{};
    for (int i = 1; i <= 5; ++i) {
      REQUIRE(noisy.next());
      CHECK(noisy.numbers(1, &number) == (i != 3));
    }
    AsyncProducer ahead(std::make_shared<Forgetful>(5, gives), 1);
    REQUIRE(ahead.numbers(0, nullptr));
    CHECK(refusal([&] {
            while (ahead.next()) REQUIRE(ahead.numbers(1, &number));
          }) == "async: the producer announced numbered samples and then gave no numbers");
  }
}

TEST_CASE("samples without elements can be picked and augmented") {
  class Empty final : public Producer {
   public:
    HTensor next() override { return at_ == 5 ? HTensor() : (++at_, HTensor(DType::F32, Shape{0})); }
    std::size_t size() const override { return 5; }
    bool seek(uint64_t, uint64_t index) override { return at_ = index, true; }
    std::optional<StreamInfo> describe() override {
      StreamInfo info;
      info.sample = Shape{0};
      info.size = 5;
      return info;
    }
    int64_t read(uint64_t n, void*) override {
      n = std::min<uint64_t>(n, 5 - at_);
      at_ += n;
      return static_cast<int64_t>(n);
    }

   private:
    uint64_t at_ = 0;
  };
  const auto two = std::make_shared<const std::vector<uint64_t>>(std::vector<uint64_t>{1, 4});
  PickProducer picked(std::make_shared<Empty>(), two);
  char none = 0;
  CHECK(picked.read(3, &none) == 2);
  class Same final : public AugmentingProducer {
   public:
    explicit Same(std::shared_ptr<Producer> inner) : AugmentingProducer(std::move(inner)) {}
    WrapperOption option() const override { return {}; }
    void apply(uint64_t, const void*, void*) override {}
  };
  Same same(std::make_shared<Empty>());
  CHECK(same.read(9, &none) == 5);
}
