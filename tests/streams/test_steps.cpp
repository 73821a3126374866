// Steps are equivalent in code and in addresses: each row is written both ways and must give the same samples.
#include <harmonics/async.hpp>
#include <harmonics/augment.hpp>
#include <harmonics/cache.hpp>
#include <harmonics/select.hpp>

#include "dsl/load.hpp"
#include "engine/streams/streams.hpp"
#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

using ProducerPtr = std::shared_ptr<Producer>;
constexpr uint64_t kSeed = 5;

struct Row {
  const char* address;
  std::function<ProducerPtr(ProducerPtr)> code;
};

Condition condition(const ProducerPtr& p, const char* text) { return Condition(text, *p->describe()); }

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"", [](ProducerPtr p) { return p; }},
      {"take=7", [](ProducerPtr p) { return std::make_shared<TakeProducer>(p, 7); }},
      {"skip=7", [](ProducerPtr p) { return std::make_shared<SkipProducer>(p, 7); }},
      {"shard=1/3", [](ProducerPtr p) { return std::make_shared<ShardProducer>(p, 1, 3); }},
      {"repeat=2", [](ProducerPtr p) { return std::make_shared<RepeatProducer>(p, 2); }},
      {"shuffle=8", [](ProducerPtr p) { return std::make_shared<ShuffleProducer>(p, 8, kSeed); }},
      {"shuffle=1000", [](ProducerPtr p) { return std::make_shared<ShuffleProducer>(p, 1000, kSeed); }},
      {"cache=1M", [](ProducerPtr p) { return std::make_shared<CacheProducer>(p, 1 << 20); }},
      {"async=3", [](ProducerPtr p) { return std::make_shared<AsyncProducer>(p, 3); }},
      {"augment=shift(1),noise(0.1)",
       [](ProducerPtr p) { return std::make_shared<AugmentProducer>(p, Augmentation().shift(1).noise(0.1), kSeed); }},
      {"where=value[0]<40,value[1]!=9",
       [](ProducerPtr p) { return std::make_shared<FilterProducer>(p, condition(p, "value[0]<40,value[1]!=9")); }},
      {"skip=2&take=20&shard=0/2",
       [](ProducerPtr p) {
         return std::make_shared<ShardProducer>(
             std::make_shared<TakeProducer>(std::make_shared<SkipProducer>(p, 2), 20), 0, 2);
       }},
      {"take=10&repeat=3&shuffle=4",
       [](ProducerPtr p) {
         return std::make_shared<ShuffleProducer>(
             std::make_shared<RepeatProducer>(std::make_shared<TakeProducer>(p, 10), 3), 4, kSeed);
       }},
      {"where=value[0]>=40&skip=1&shuffle=16",
       [](ProducerPtr p) {
         const auto chosen = std::make_shared<FilterProducer>(p, condition(p, "value[0]>=40"));
         return std::make_shared<ShuffleProducer>(std::make_shared<SkipProducer>(chosen, 1), 16, kSeed);
       }},
      {"cache=1M&augment=flip,cutout(1)&async=4&repeat=2&shuffle=9",
       [](ProducerPtr p) {
         p = std::make_shared<AugmentProducer>(std::make_shared<CacheProducer>(p, 1 << 20),
                                               Augmentation().flip().cutout(1), kSeed);
         p = std::make_shared<RepeatProducer>(std::make_shared<AsyncProducer>(p, 4), 2);
         return std::make_shared<ShuffleProducer>(p, 9, kSeed);
       }},
      {"augment=flip,shift(1)&repeat=2&shuffle=1000",
       [](ProducerPtr p) {  // read by number, except passes that differ
         p = std::make_shared<RepeatProducer>(
             std::make_shared<AugmentProducer>(p, Augmentation().flip().shift(1), kSeed), 2);
         return std::make_shared<ShuffleProducer>(p, 1000, kSeed);
       }}};
  return table;
}

Graph graph_of_two() {
  const auto text = std::make_shared<SourceText>(
      "g.hmx", "harmonic g { producer x; producer y; consumer a; consumer b; cycle { x -> a; y -> b; } }");
  return make_graph(parse_flow(text), Registry::global());
}

using SampleRows = std::vector<std::vector<float>>;

// Returns x and y of an epoch, as read by a cycle.
std::pair<SampleRows, std::vector<int64_t>> read_epoch(JointReader& reader, uint64_t batch, size_t width) {
  std::vector<float> x(batch * width);
  std::vector<int64_t> y(batch);
  void* const to[] = {x.data(), y.data()};
  std::pair<SampleRows, std::vector<int64_t>> out;
  while (const uint64_t n = reader.read(to))
    for (uint64_t i = 0; i < n; ++i) {
      out.first.emplace_back(x.data() + i * width, x.data() + (i + 1) * width);
      out.second.push_back(y[i]);
    }
  return out;
}

// 60 rows "n, n + 8, 2n, 3n" with the label n, as the file x.csv.
std::string numbered(const TemporaryFolder& folder) {
  std::string text;
  for (int n = 0; n < 60; ++n)
    text += std::to_string(n) + "," + std::to_string(n + 8) + "," + std::to_string(2 * n) + "," +
            std::to_string(3 * n) + "," + std::to_string(n) + "\n";
  return folder.write("x.csv", text);
}

}  // namespace

TEST_CASE("wrappers mean the same in code and in addresses") {
  const TemporaryFolder folder;
  const std::string path = numbered(folder);
  for (const Row& row : rows()) {
    INFO(row.address);
    const Graph graph = graph_of_two();
    StreamSet streams;
    const std::string options = std::string(row.address).empty() ? "" : std::string("&") + row.address;
    streams.bind(graph, Registry::global(), "x", parse_address("file:" + path + "?shape=2x2" + options + "#0-3"));
    streams.bind(graph, Registry::global(), "y", parse_address("file:" + path + "#4"));
    const auto reader = streams.reader(graph, {graph.find("x"), graph.find("y")}, 7, false, kSeed);
    const ProducerPtr code = row.code(open_file(path, Options{{"shape", "2x2"}, {"#", "0-3"}}));
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      reader->begin(epoch);
      const auto [x, y] = read_epoch(*reader, 7, 4);
      REQUIRE(code->seek(epoch, 0));
      const SampleRows expected = drain<float>(*code);
      CHECK(expected.size() > 3);
      CHECK(x == expected);
      // Corresponding samples stay together.
      if (std::string(row.address).find("augment") == std::string::npos)
        for (size_t i = 0; i < x.size(); ++i) REQUIRE(static_cast<int64_t>(x[i][0]) == y[i]);
      CHECK(reader->size() == x.size());
      if (epoch == 1) {  // also from the middle of an epoch
        reader->seek(1, 3);
        CHECK(read_epoch(*reader, 7, 4).first == SampleRows(expected.begin() + 3, expected.end()));
      }
    }
  }
}

TEST_CASE("a condition on one stream filters all streams read with it") {
  const TemporaryFolder folder;
  const std::string path = numbered(folder);
  const Graph graph = graph_of_two();
  StreamSet streams;
  streams.bind(graph, Registry::global(), "x", parse_address("file:" + path + "?where=value[3]<150#0-3"));
  streams.bind(graph, Registry::global(), "y", parse_address("file:" + path + "?where=value>=10&take=30#4"));
  const auto reader = streams.reader(graph, {graph.find("x"), graph.find("y")}, 8, true, 1);
  CHECK(reader->size() == 30);
  reader->begin(4);
  auto [x, y] = read_epoch(*reader, 8, 4);
  for (size_t i = 0; i < x.size(); ++i) CHECK(static_cast<int64_t>(x[i][0]) == y[i]);
  std::sort(y.begin(), y.end());
  CHECK((y.size() == 30 && y.front() == 10 && y.back() == 39));
  // A stream read alone is complete, or filtered by its own condition only.
  CHECK(streams.reader(graph, {graph.find("x")}, 8, false, 1)->size() == 30);
}

TEST_CASE("invalid steps are refused with the stream's name") {
  const TemporaryFolder folder;
  const std::string path = numbered(folder);
  const auto refuse = [&](const std::string& options) {
    return refusal([&] {
      const Graph graph = graph_of_two();
      StreamSet streams;
      streams.bind(graph, Registry::global(), "x", parse_address("file:" + path + "?" + options));
      streams.reader(graph, {graph.find("x")}, 8, false, 1);
    });
  };
  CHECK(refuse("cache=1") ==
        "stream 'x': cache: 60 samples of 20 bytes take more than the 1 byte allowed; allow more, or read fewer "
        "samples");
  CHECK(refuse("cache=lots") == "option 'cache=lots' of 'x' must be a number of bytes, such as 512M or 4G");
  CHECK(refuse("async=x") == "option 'async=x' of 'x' must be a whole number");
  CHECK(refuse("where=value<-1") == "where= of 'x' keeps none of 60 samples");
  CHECK(refuse("where=value[9]<1").find("stream 'x': where=value[9]<1: there is no value[9], a sample has 5") == 0);
  CHECK(refuse("where=finite&augment=noise(1)") ==
        "where=finite of 'x' tests samples that augment= changes in every pass; remove one of them");
  CHECK(refuse("augment=shift(1)").find("stream 'x': augment: samples of shape [5] are not pictures") == 0);
}

TEST_CASE("an address may name a field of another producer's address") {
  const TemporaryFolder folder;
  const std::string path = folder.write("t.csv", "a,b,label\n1,2,red\n3,4,blue\n5,6,red\n");
  const Graph graph = graph_of_two();
  const auto bound = [&](const std::string& x, const std::string& y) {
    StreamSet streams;
    streams.bind(graph, Registry::global(), "x", parse_address(x));
    streams.bind(graph, Registry::global(), "y", parse_address(y));
    return streams.source(graph.find("y")).info();
  };
  const StreamInfo twice = bound(path + "?header=true&dtype=u8&take=2#a,b", path + "?header=true#label"),
                   once = bound(path + "?header=true&dtype=u8&take=2#a,b", "x#label");
  CHECK(once.symbols == std::vector<std::string>{"blue", "red"});
  CHECK(once.symbols == twice.symbols);
  CHECK(once.dtype == twice.dtype);
  CHECK(once.size == 3);  // take= applies to both
  CHECK(bound(path + "?header=true#a,b", "x?as=number#b").dtype == DType::F32);
  CHECK(refusal([&] { bound(path + "#a,b", "y#label"); }).find("cannot read 'y'") !=
        std::string::npos);  // it is a file
  StreamSet streams;
  CHECK(refusal([&] { streams.bind(graph, Registry::global(), "y", parse_address("x#label")); }) ==
        "'y' is bound to a field of producer 'x', which is not bound");
  streams.bind(graph, graph.find("x"), Source("x", std::make_shared<CountingProducer>(3)));
  CHECK(refusal([&] { streams.bind(graph, Registry::global(), "y", parse_address("x#label")); }) ==
        "'y' is bound to a field of producer 'x', which is an object without fields");
}

TEST_CASE("streams of different lengths are read to the end of the shortest, also under a condition") {
  const TemporaryFolder folder;
  const std::string x = numbered(folder);
  std::string text;
  for (int n = 0; n < 45; ++n) text += std::to_string(n) + "\n";
  const std::string y = folder.write("y.csv", text);
  const Graph graph = graph_of_two();
  const auto read = [&](const std::string& options, std::optional<Unpaired> unpaired = std::nullopt) {
    StreamSet streams;
    streams.bind(graph, Registry::global(), "x", parse_address("file:" + x + "?" + options + "#0-3"));
    streams.bind(graph, Registry::global(), "y", parse_address("file:" + y));
    const auto reader = streams.reader(graph, {graph.find("x"), graph.find("y")}, 7, true, kSeed, unpaired);
    const auto [xs, ys] = read_epoch(*reader, 7, 4);
    for (size_t i = 0; i < ys.size(); ++i) REQUIRE(static_cast<int64_t>(xs[i][0]) == ys[i]);
    CHECK(xs.size() == reader->size());
    return ys.size();
  };
  CHECK(read("shape=4") == 45);
  CHECK(read("where=value[0]>=10") == 35);
  CHECK(read("skip=40") == 5);
  CHECK(read("shard=1/2") == 22);
  CHECK(refusal([&] { read("unpaired=refuse"); }).find("they do not belong together") != std::string::npos);
  CHECK(refusal([&] { read("shape=4", Unpaired::refuse); }).find("they do not belong together") != std::string::npos);
  CHECK(read("unpaired=drop", Unpaired::refuse) == 45);  // the address takes precedence
}
