// Products of lengths that overflow: in shapes, addresses and flows.
#include <limits>

#include <harmonics/async.hpp>
#include <harmonics/checked.hpp>

#include "dsl/load.hpp"
#include "engine/streams/streams.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Graph flow_graph(const std::string& text) {
  return make_graph(parse_flow(std::make_shared<SourceText>("g.hmx", text)), Registry::global());
}

}  // namespace

TEST_CASE("checked arithmetic: overflow gives no value") {
  constexpr int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(checked_product<int64_t>(most, 1) == most);
  CHECK(!checked_product<int64_t>(most / 2 + 1, 2));
  CHECK(!checked_sum<uint64_t>(std::numeric_limits<uint64_t>::max(), 1));
  CHECK(checked_count<int64_t>(Shape{}) == 1);
  CHECK(checked_count<int64_t>(Shape{3, 0, 5}) == 0);
  CHECK(!checked_count<int64_t>(Shape{3, -1}));
  CHECK(!checked_count<int64_t>(Shape{0, most, 2}));
}

TEST_CASE("shapes: an overflowing element count is refused") {
  CHECK(Shape{1 << 20, 1 << 20, 1 << 20}.count() == int64_t{1} << 60);
  CHECK(refusal([] {
          (void)Shape{1 << 20, 1 << 20, 1 << 20, 8}.count();
        }) == "a tensor of shape [1048576, 1048576, 1048576, 8] has more elements than 2^63 - 1");
  StreamInfo info;
  info.dtype = DType::F64;
  info.sample = Shape{int64_t{1} << 62};
  CHECK(says(refusal([&] { (void)info.sample_bytes(); }), "has more bytes than an address space"));
}

TEST_CASE("options of addresses that overflow: async") {
  const auto of = [](uint64_t size) { return std::make_shared<CountingProducer>(size); };
  for (const uint64_t ahead : {uint64_t{1} << 63, std::numeric_limits<uint64_t>::max()}) {
    AsyncProducer known(of(5), ahead);  // never reads beyond a pass
    CHECK(numbers(drain<int32_t>(known)) == std::vector<int>{0, 1, 2, 3, 4});
    CHECK(known.option().text == "async=" + std::to_string(ahead));
  }
  class Endless : public CountingProducer {
   public:
    Endless() : CountingProducer(1000) {}
    std::size_t size() const override { return 0; }
  };
  CHECK(says(refusal([&] { AsyncProducer(std::make_shared<Endless>(), std::numeric_limits<uint64_t>::max() / 8 + 1); }),
             "need more memory than is available"));
}

TEST_CASE("options of addresses that overflow: repeat, skip, shuffle, batch") {
  Source source("x", std::make_shared<CountingProducer>(60));
  JointOptions options;
  options.repeat = std::numeric_limits<int64_t>::max();
  CHECK(says(refusal([&] {
               JointReader({{&source, 1}}, options);
             }),
             "repeat=9223372036854775807 of 60 joint samples makes an epoch of more than"));
  const auto counting = [] { return std::make_shared<CountingProducer>(60); };
  SkipProducer skip(counting(), std::numeric_limits<uint64_t>::max() - 1);
  CHECK(!skip.next());
  CHECK_THROWS_AS(skip.seek(0, 5), Error);
  CHECK_THROWS_AS(BatchProducer(counting(), std::numeric_limits<uint64_t>::max()), Error);
  RepeatProducer repeat(counting(), std::numeric_limits<uint64_t>::max());
  CHECK(repeat.size() == 0);  // treated as unbounded
  CHECK(repeat.seek(0, 61));
  CHECK(repeat.next().data<int32_t>()[0] == 10);
}

TEST_CASE("flows: overflowing shapes and ratios are refused with their location") {
  const auto refused = [](const std::string& text) {
    try {
      flow_graph(text);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(says(refused("harmonic g { producer x {4294967296, 4294967296, 3}; consumer y; cycle { x -> y; } }"),
             "the shape of 'x' has more than 2^63 values, the maximum is 1099511627776"));
  CHECK(says(refused("harmonic g { producer x {1048576, 1048576, 3}; consumer y; cycle { x -> y; } }"),
             "the shape of 'x' has 3298534883328 values"));
}
