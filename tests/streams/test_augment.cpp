// Steps on samples: augmenting, caching, filtering, selecting, mapping.
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

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

// Returns `count` images of one shape, f32 or u8, each made by `make`.
template <typename T>
class Pictures final : public Producer {
 public:
  Pictures(Shape shape, uint64_t count, std::function<T(uint64_t picture, int64_t place)> make)
      : make_(std::move(make)) {
    info_.dtype = detail::dtype_of<T>::value;
    info_.sample = shape;
    info_.size = count;
  }
  HTensor next() override {
    std::vector<T> one(static_cast<size_t>(info_.sample.count()));
    return read(1, one.data()) ? HTensor(info_.dtype, info_.sample, one.data()) : HTensor();
  }
  std::size_t size() const override { return info_.size; }
  bool rewind() override { return at_ = 0, true; }
  bool seek(uint64_t, uint64_t index) override { return at_ = index, true; }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    n = std::min(n, info_.size - at_);
    for (uint64_t i = 0; i < n; ++i, ++at_)
      read_at(&at_, 1, static_cast<T*>(to) + i * static_cast<uint64_t>(info_.sample.count()));
    return static_cast<int64_t>(n);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    for (uint64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < info_.sample.count(); ++k)
        static_cast<T*>(to)[i * static_cast<uint64_t>(info_.sample.count()) + static_cast<uint64_t>(k)] =
            make_(numbers[i], k);
    return true;
  }

 private:
  std::function<T(uint64_t, int64_t)> make_;
  StreamInfo info_;
  uint64_t at_ = 0;
};

// Images with one bright pixel in the middle of 9 x 9.
std::shared_ptr<Producer> points(uint64_t count = 200) {
  return std::make_shared<Pictures<float>>(Shape{9, 9}, count,
                                           [](uint64_t, int64_t k) { return k == 40 ? 1.0f : 0.0f; });
}
std::shared_ptr<Producer> ramps(uint64_t count = 50) {
  return std::make_shared<Pictures<uint8_t>>(Shape{2, 5, 6}, count, [](uint64_t n, int64_t k) {
    return static_cast<uint8_t>(n + static_cast<uint64_t>(k) * 3);
  });
}
std::vector<std::vector<float>> augmented(const std::string& steps, uint64_t seed = 1) {
  AugmentProducer p(points(), Augmentation::parse(steps), seed);
  return drain<float>(p);
}

std::vector<std::string> bytes_of_pass(Producer& p) {
  std::vector<std::string> all;
  while (const HTensor t = p.next())
    all.emplace_back(static_cast<const char*>(t.bytes()), p.describe()->sample_bytes());
  return all;
}

}  // namespace

TEST_CASE("augmentations: a step moves a picture within its limit") {
  std::set<std::pair<int, int>> places;
  for (const auto& picture : augmented("shift(2)")) {
    CHECK(std::count(picture.begin(), picture.end(), 1.0f) == 1);
    const auto at = static_cast<int>(std::find(picture.begin(), picture.end(), 1.0f) - picture.begin());
    places.insert({at / 9 - 4, at % 9 - 4});
  }
  CHECK(places.size() == 25);
  CHECK((places.begin()->first == -2 && places.rbegin()->first == 2));
  for (const auto& picture : augmented("rotate(180)")) CHECK(picture[40] == 1.0f);  // the centre keeps its position
  for (const auto& picture : augmented("scale(0.5)")) CHECK(picture[40] == 1.0f);
  for (const auto& picture : augmented("shift(0),rotate(0),scale(0),noise(0)")) CHECK(picture[40] == 1.0f);

  // A quarter turn and back restores the image. A shift within one run of steps is exact.
  AugmentProducer flipped(ramps(), Augmentation().flip().flip(true), 1);
  std::set<int> corners;
  uint64_t n = 0;
  for (const auto& picture : drain<uint8_t>(flipped)) corners.insert(picture[0] - static_cast<int>(n++));
  CHECK(corners == std::set<int>{0, 15, 72, 87});

  double sum = 0, squares = 0, count = 0;
  for (const auto& picture : augmented("noise(0.25)"))
    for (size_t k = 0; k < picture.size(); ++k) {
      const double x = static_cast<double>(picture[k]) - (k == 40);
      sum += x, squares += x * x, ++count;
    }
  CHECK(std::abs(sum / count) < 0.01);
  CHECK(std::sqrt(squares / count) == Approx(0.25).epsilon(0.02));

  std::set<long> holes;
  AugmentProducer cut(std::make_shared<Pictures<float>>(Shape{9, 9}, 300, [](uint64_t, int64_t) { return 1.0f; }),
                      Augmentation().cutout(3), 1);
  for (const auto& picture : drain<float>(cut)) holes.insert(std::count(picture.begin(), picture.end(), 0.0f));
  CHECK(holes == std::set<long>{4, 6, 9});  // at corners and edges, only a part of the square is inside
}

TEST_CASE("crops have the requested size, at random or in the middle") {
  AugmentProducer crop(ramps(), Augmentation::parse("crop(3, 4)"), 1),
      center(ramps(), Augmentation::parse("center(3,4)"), 1);
  CHECK(crop.describe()->sample == Shape{2, 3, 4});
  std::set<int> first;
  uint64_t n = 0;
  for (const auto& picture : drain<uint8_t>(crop)) {
    const int begin = picture[0] - static_cast<int>(n++);
    first.insert(begin);
    for (int y = 0; y < 3; ++y)
      for (int x = 0; x < 4; ++x)
        CHECK(picture[static_cast<size_t>(12 + y * 4 + x)] - picture[0] == 90 + y * 18 + x * 3);
  }
  CHECK(first == std::set<int>{0, 3, 6, 18, 21, 24, 36, 39, 42});
  CHECK(center.next().data<uint8_t>()[0] == 3 * (1 * 6 + 1));
}

TEST_CASE("an augmentation depends on seed, epoch and record only") {
  const std::string all = "shift(1),rotate(20),scale(0.2),flip,cutout(2),noise(0.1)";
  const auto make = [&](uint64_t seed) {
    return std::make_shared<AugmentProducer>(ramps(), Augmentation::parse(all), seed);
  };
  const auto one = make(1);
  const std::vector<std::string> first = bytes_of_pass(*one);
  REQUIRE(one->rewind());
  const std::vector<std::string> second = bytes_of_pass(*one);
  CHECK((first != second));
  CHECK((first != bytes_of_pass(*make(2))));
  const size_t bytes = one->describe()->sample_bytes();
  for (const uint64_t epoch : {0, 1}) {
    const auto& expected = epoch ? second : first;
    const auto again = make(1);
    REQUIRE(again->seek(epoch, 0));
    CHECK((bytes_of_pass(*again) == expected));
    for (const uint64_t chunk : {1, 7, 100}) {
      REQUIRE(again->seek(epoch, 13));
      std::string block(bytes * chunk, '\0');
      for (uint64_t at = 13; at < 50; at += chunk) {
        const int64_t got = again->read(chunk, block.data());
        REQUIRE(got == static_cast<int64_t>(std::min(chunk, 50 - at)));
        for (int64_t i = 0; i < got; ++i)
          CHECK((block.substr(static_cast<size_t>(i) * bytes, bytes) == expected[at + static_cast<uint64_t>(i)]));
      }
    }
    std::string sample(bytes, '\0');
    for (const uint64_t number : {49, 3, 20}) {
      REQUIRE(again->read_at(&number, 1, sample.data()));
      CHECK((sample == expected[number]));
    }
    const auto ahead = std::make_shared<AsyncProducer>(make(1), 5);
    REQUIRE(ahead->seek(epoch, 20));
    CHECK((bytes_of_pass(*ahead) == std::vector<std::string>(expected.begin() + 20, expected.end())));
    const auto kept = std::make_shared<AugmentProducer>(std::make_shared<CacheProducer>(ramps(), 1 << 20),
                                                        Augmentation::parse(all), 1);
    REQUIRE(kept->seek(epoch, 0));
    CHECK((bytes_of_pass(*kept) == expected));
  }
}

TEST_CASE("augmentations: invalid steps are refused") {
  const auto refuse = [](const std::string& text) {
    return refusal([&] { AugmentProducer(points(), Augmentation::parse(text), 1); });
  };
  const std::string how =
      "; write shift(2), rotate(15), scale(0.1), flip, crop(24), center(24), cutout(8) or noise(0.05), with commas "
      "between";
  CHECK(refuse("blur(2)") == "augment=blur(2): 'blur' is unknown" + how);
  CHECK(refuse("shift") == "augment=shift: 'shift' takes 1 number, it has 0" + how);
  CHECK(refuse("shift(2,3)") == "augment=shift(2,3): 'shift' takes 1 number, it has 2" + how);
  CHECK(refuse("shift(x)") == "augment=shift(x): 'x' in 'shift(...)' is not a number" + how);
  CHECK(refuse("shift(2") == "augment=shift(2: 'shift(' has no closing ')'" + how);
  CHECK(refuse("shift(2)flip") == "augment=shift(2)flip: a comma is expected behind 'shift(...)'" + how);
  CHECK(refuse("flip(sideways)") == "augment=flip(sideways): 'flip' takes nothing, or 'vertical'" + how);
  CHECK(refuse("scale(2)") == "augment: scale(2) is not offered; from 0 to 0.99 it is");
  CHECK(refuse("crop(10)") == "augment: a piece of 10 x 10 does not fit into pictures of 9 x 9");
  CHECK(refusal([] { AugmentProducer(std::make_shared<CountingProducer>(3), Augmentation().noise(1)); }) ==
        "augment works on u8 and f32; these samples are of another type");
  const auto row = std::make_shared<Pictures<float>>(Shape{4}, 3, [](uint64_t, int64_t) { return 0.0f; });
  CHECK(refusal([&] { AugmentProducer(row, Augmentation().shift(1)); }) ==
        "augment: samples of shape [4] are not pictures; only noise can be applied to them");
  CHECK(AugmentProducer(row, Augmentation().noise(1)).next());
}

TEST_CASE("a cache reads its source once, in order and by number") {
  for (const Gives gives : {Gives::Blocks, Gives::Singles, Gives::ByNumber}) {
    const auto source = std::make_shared<CountingProducer>(20, gives);
    CacheProducer cache(source, 1000);
    for (int i = 0; i < 7; ++i) REQUIRE(cache.next());
    REQUIRE(cache.seek(0, 15));
    CHECK(numbers(drain<int32_t>(cache)) == std::vector<int>{15, 16, 17, 18, 19});
    const uint64_t some[] = {12, 3};
    int32_t two[4];
    REQUIRE(cache.read_at(some, 2, two));
    CHECK((two[0] == 120 && two[2] == 30));
    for (int pass = 0; pass < 3; ++pass) {
      REQUIRE(cache.rewind());
      CHECK(numbers(drain_blocks<int32_t>(cache, 6)).size() == 20);
    }
    CHECK(source->rewinds <= 4);  // once as a test, then for uncached samples, never for cached ones
    CHECK(source->by_number <= 20);
  }
  CHECK(refusal([] { CacheProducer(std::make_shared<CountingProducer>(20), 159); }) ==
        "cache: 20 samples of 8 bytes take more than the 159 bytes allowed; allow more, or read fewer samples");
  CHECK(refusal([] {
          CacheProducer(std::make_shared<RepeatProducer>(std::make_shared<CountingProducer>(20), 0), 1000);
        }) == "cache: the producer does not report its number of samples, so they cannot be cached");
}

TEST_CASE("conditions compare numbers of a sample") {
  StreamInfo info;
  info.sample = Shape{3};
  const float sample[] = {1, 2.5, -3};
  const auto holds = [&](const std::string& text) { return Condition(text, info)(sample); };
  CHECK(holds("value<3"));
  CHECK(!holds("value<2.5"));
  CHECK(holds("value<=2.5"));
  CHECK(holds("value[0]=1,value[2]<0"));
  CHECK(!holds("value[0]=1,value[2]>0"));
  CHECK(holds("value!=0"));
  CHECK(holds("value[1]>=2.5"));
  CHECK(holds("finite"));
  const float broken[] = {1, NAN, 2};
  CHECK(!Condition("finite", info)(broken));
  CHECK(!Condition("value<3", info)(broken));
  CHECK(Condition("value[0]<3", info)(broken));
  StreamInfo words;
  words.dtype = DType::I64;
  words.symbols = {"cat", "dog"};
  const int64_t dog = 1;
  CHECK(Condition("value=dog", words)(&dog));
  CHECK(!Condition("value=cat", words)(&dog));
  const auto refuse = [&](const std::string& text) { return refusal([&] { Condition(text, info); }); };
  const std::string how = "; write for example value<5, value[0]>=0.5, value!=3 or finite";
  CHECK(refuse("label<5") == "where=label<5: 'label<5' does not begin with value" + how);
  CHECK(refuse("value") == "where=value: 'value' has nothing to compare with" + how);
  CHECK(refuse("value<") == "where=value<: '' is not a number" + how);
  CHECK(refuse("value<x") == "where=value<x: 'x' is not a number" + how);
  CHECK(refuse("value[3]<1") == "where=value[3]<1: there is no value[3], a sample has 3" + how);
  CHECK(refuse("value[<1") == "where=value[<1: 'value[<1' has no index such as [0]" + how);
  CHECK(refuse("value<1,") == "where=value<1,: '' does not begin with value" + how);
}

TEST_CASE("filtering, picking and mapping") {
  for (const Gives gives : {Gives::Blocks, Gives::Singles, Gives::SinglesWithoutType, Gives::ByNumber}) {
    FilterProducer odd(std::make_shared<CountingProducer>(10, gives),
                       [](const HTensor& t) { return t.data<int32_t>()[0] / 10 % 2 == 1; });
    CHECK(numbers(drain<int32_t>(odd)) == std::vector<int>{1, 3, 5, 7, 9});
    REQUIRE(odd.seek(0, 3));
    CHECK(numbers(drain<int32_t>(odd)) == std::vector<int>{7, 9});
    MapProducer twice(std::make_shared<CountingProducer>(4, gives), [](const HTensor& t) {
      return HTensor::from(Shape{1}, std::vector<float>{static_cast<float>(2 * t.data<int32_t>()[0])});
    });
    CHECK(drain<float>(twice) == std::vector<std::vector<float>>{{0}, {20}, {40}, {60}});
    if (gives == Gives::SinglesWithoutType) continue;
    const auto three = std::make_shared<const std::vector<uint64_t>>(std::vector<uint64_t>{0, 3, 4});
    PickProducer pairs(std::make_shared<CountingProducer>(10, gives), three, 2);
    CHECK(pairs.describe()->size == 6);
    CHECK(numbers(drain<int32_t>(pairs)) == std::vector<int>{0, 1, 6, 7, 8, 9});
    for (const uint64_t index : {0, 1, 2, 3, 5, 6}) {
      REQUIRE(pairs.seek(1, index));
      const std::vector<int> all{0, 1, 6, 7, 8, 9};
      CHECK(numbers(drain_blocks<int32_t>(pairs, 4)) ==
            std::vector<int>(all.begin() + static_cast<std::ptrdiff_t>(index), all.end()));
    }
    const uint64_t some[] = {5, 2};
    int32_t two[4];
    CHECK(pairs.read_at(some, 2, two) == (gives == Gives::ByNumber));
    if (gives == Gives::ByNumber) CHECK((two[0] == 90 && two[2] == 60));
  }
}
