// Wrappers in code and options of addresses are equivalent. Every row is bound both ways, to every kind of producer,
// and must give the same samples in the same order and bitwise equal weights.
#include <catch2/catch.hpp>

#include <cstring>
#include <functional>

#include <harmonics/async.hpp>
#include <harmonics/augment.hpp>
#include <harmonics/cache.hpp>
#include <harmonics/graph.hpp>
#include <harmonics/memory.hpp>
#include <harmonics/select.hpp>

#include <unistd.h>

using namespace harmonics;

namespace {

using ProducerPtr = std::shared_ptr<Producer>;
constexpr uint64_t kSamples = 60;

enum class Kind { Rewinds, Once, DescribedOnce, Described, Seekable, Blocks, ByNumber, Memory, Live };
const std::pair<const char*, Kind> kKinds[] = {
    {"rewinds", Kind::Rewinds},     {"once", Kind::Once},         {"described once", Kind::DescribedOnce},
    {"described", Kind::Described}, {"seekable", Kind::Seekable}, {"blocks", Kind::Blocks},
    {"by number", Kind::ByNumber},  {"memory", Kind::Memory},     {"live", Kind::Live}};

// Sample n is the picture "n, n + 8, 2n, 3n" in units of 1/60; its target is n / 60.
void fill(uint64_t n, bool target, float* to) {
  const auto v = static_cast<float>(n) / 60;
  const float picture[] = {v, v + 0.125f, 2 * v, 3 * v};
  std::memcpy(to, target ? &v : picture, (target ? 1 : 4) * sizeof v);
}
HTensor sample(uint64_t n, bool target) {
  float values[4];
  fill(n, target, values);
  return target ? HTensor(DType::F32, Shape{1}, values) : HTensor(DType::F32, Shape{2, 2}, values);
}

class Numbers : public Producer {
 public:
  Numbers(Kind kind, bool target) : kind_(kind), target_(target) {}
  HTensor next() override { return at_ == kSamples ? HTensor() : sample(at_++, target_); }
  std::size_t size() const override { return kind_ == Kind::Live ? 0 : kSamples; }
  bool rewind() override {
    if (kind_ == Kind::Once || kind_ == Kind::DescribedOnce || kind_ == Kind::Live) return false;
    return at_ = 0, true;
  }
  bool seek(uint64_t epoch, uint64_t index) override {
    if (kind_ != Kind::Seekable && kind_ != Kind::ByNumber) return Producer::seek(epoch, index);
    return at_ = index, true;
  }
  std::optional<StreamInfo> describe() override {
    if (kind_ == Kind::Rewinds || kind_ == Kind::Once) return std::nullopt;
    StreamInfo info;
    info.sample = target_ ? Shape{1} : Shape{2, 2};
    info.size = size();
    info.live = kind_ == Kind::Live;
    return info;
  }
  int64_t read(uint64_t n, void* to) override {
    if (kind_ != Kind::Blocks && kind_ != Kind::ByNumber && kind_ != Kind::Live) return -1;
    n = std::min(n, kSamples - at_);
    for (uint64_t i = 0; i < n; ++i) fill(at_++, target_, static_cast<float*>(to) + i * (target_ ? 1 : 4));
    return static_cast<int64_t>(n);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    for (uint64_t i = 0; i < n; ++i) fill(numbers[i], target_, static_cast<float*>(to) + i * (target_ ? 1 : 4));
    return kind_ == Kind::ByNumber;
  }

 private:
  Kind kind_;
  bool target_;
  uint64_t at_ = 0;
};

ProducerPtr made(Kind kind, bool target) {
  if (kind != Kind::Memory) return std::make_shared<Numbers>(kind, target);
  std::vector<HTensor> all;
  for (uint64_t n = 0; n < kSamples; ++n) all.push_back(sample(n, target));
  return std::make_shared<MemoryProducer>(std::move(all));
}

struct Row {
  const char* address;
  bool joint;  // affects all streams that are read together
  std::function<ProducerPtr(ProducerPtr)> code;
};
constexpr uint64_t kSeed = 5;

template <typename Wrapper, typename... Args>
std::function<ProducerPtr(ProducerPtr)> around(Args... args) {
  return [=](ProducerPtr p) { return std::make_shared<Wrapper>(std::move(p), args...); };
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"", true, [](ProducerPtr p) { return p; }},
      {"take=7", true, around<TakeProducer>(7)},
      {"skip=7", true, around<SkipProducer>(7)},
      {"shard=1/3", true, around<ShardProducer>(1, 3)},
      {"repeat=2", true, around<RepeatProducer>(2)},
      {"shuffle=8&seed=5", true, around<ShuffleProducer>(8, kSeed)},
      {"shuffle=1000&seed=5", true, around<ShuffleProducer>(1000, kSeed)},
      {"batch=8", true, around<BatchProducer>(8)},
      {"batch=8&rest=drop", true, around<BatchProducer>(8, BatchProducer::Last::Dropped)},
      {"cache=1M", false, around<CacheProducer>(1 << 20)},
      {"async=3", false, around<AsyncProducer>(3)},
      {"augment=shift(1),noise(0.1)&augment-seed=5", false,
       [](ProducerPtr p) { return std::make_shared<AugmentProducer>(p, Augmentation().shift(1).noise(0.1), kSeed); }},
      {"where=value[0]<0.5,value[1]!=0.175", false,
       [](ProducerPtr p) { return std::make_shared<FilterProducer>(p, "value[0]<0.5,value[1]!=0.175"); }},
      {"skip=2&take=20&shard=0/2&shuffle=0", true,
       [](ProducerPtr p) {
         p = std::make_shared<TakeProducer>(std::make_shared<SkipProducer>(p, 2), 20);
         return std::make_shared<ShuffleProducer>(std::make_shared<ShardProducer>(p, 0, 2), 1);
       }},
      {"take=10&repeat=3&shuffle=4&seed=5&batch=7", true,
       [](ProducerPtr p) {
         p = std::make_shared<RepeatProducer>(std::make_shared<TakeProducer>(p, 10), 3);
         return std::make_shared<BatchProducer>(std::make_shared<ShuffleProducer>(p, 4, kSeed), 7);
       }},
      {"async=4&shuffle=9&seed=5&batch=16", true,
       [](ProducerPtr p) {  // async as the outermost wrapper
         return std::make_shared<AsyncProducer>(
             std::make_shared<BatchProducer>(std::make_shared<ShuffleProducer>(p, 9, kSeed), 16), 4);
       }},
      {"cache=1M&augment=flip,cutout(1),crop(2,1)&augment-seed=3&async=4&shuffle=9&seed=5", false, [](ProducerPtr p) {
         p = std::make_shared<AugmentProducer>(std::make_shared<CacheProducer>(p, 1 << 20),
                                               Augmentation().flip().cutout(1).crop(2, 1), 3);
         return std::make_shared<ShuffleProducer>(std::make_shared<AsyncProducer>(p, 4), 9, kSeed);
       }}};
  return table;
}

struct Collected : Consumer {
  std::vector<float> values;
  void push(const HTensor& sample) override {
    values.insert(values.end(), sample.data<float>(), sample.data<float>() + sample.size());
  }
};

constexpr const char* kWrappedFlow =
    "harmonic g { producer x; producer y; consumer cx; consumer cy; layer o {1}; cycle { x -> cx; y -> cy; x "
    "-(affine)-> o; o <-(mse)- y; } }";

// Returns a graph whose addresses "made:KIND" open the producers of this file.
HarmonicGraph graph_with_kinds() {
  hx_graph* raw = nullptr;
  detail::check(harmonics_graphs()->parse(kWrappedFlow, "text", nullptr, &raw));
  HarmonicGraph g(raw);
  hx_registration registration{sizeof registration, harmonics_api(), harmonics_graphs()->registry(raw)};
  reinterpret_cast<FunctionRegistry&>(registration)
      .register_producer("made", [](const std::string& path, const Arguments& arguments) {
        return made(kKinds[std::stoul(path)].second, arguments.text("#") == "target");
      });
  return g;
}

struct Outcome {
  std::vector<float> x, y, weights;
  std::string error;
  bool operator==(const Outcome& o) const { return x == o.x && y == o.y && weights == o.weights; }
};
Outcome outcome(HarmonicGraph& g, const std::function<void()>& bind) {
  Outcome out;
  try {
    bind();
    const auto cx = std::make_shared<Collected>(), cy = std::make_shared<Collected>();
    g.bindConsumer("cx", cx);
    g.bindConsumer("cy", cy);
    FitOptions options;
    options.epochs = 3;
    options.threads = 1;
    g.fit(options);
    out.x = cx->values;
    out.y = cy->values;
    for (const std::string& name : g.weights()) {
      const HTensor w = g.weight(name);
      out.weights.insert(out.weights.end(), w.data<float>(), w.data<float>() + w.size());
    }
  } catch (const Error& e) {
    out.error = e.what();
  }
  return out;
}

Outcome by_address(size_t kind_x, size_t kind_y, const std::string& options) {
  HarmonicGraph g = graph_with_kinds();
  return outcome(g, [&] {
    g.bindProducer("x", "made:" + std::to_string(kind_x) + (options.empty() ? "" : "?" + options));
    g.bindProducer("y", "made:" + std::to_string(kind_y) + "#target");
  });
}
Outcome by_code(size_t kind_x, size_t kind_y, const Row& row, bool both) {
  HarmonicGraph g = graph_with_kinds();
  return outcome(g, [&] {
    g.bindProducer("x", row.code(made(kKinds[kind_x].second, false)));
    const ProducerPtr y = made(kKinds[kind_y].second, true);
    g.bindProducer("y", both ? row.code(y) : y);
  });
}

bool augments(const Row& row) { return std::string(row.address).find("augment") != std::string::npos; }

}  // namespace

TEST_CASE("wrapped streams: a wrapper around any kind of producer equals its address option, to the bit") {
  for (size_t kind = 0; kind < std::size(kKinds); ++kind)
    for (const Row& row : rows()) {
      INFO(kKinds[kind].first << " " << row.address);
      const Outcome address = by_address(kind, kind, row.address), code = by_code(kind, kind, row, false);
      CHECK(code == address);
      CHECK(code.error.empty() == address.error.empty());
      INFO(address.error);
      if (kKinds[kind].second != Kind::Live) REQUIRE(address.x.size() >= 3 * 7 * 2);
      if (row.joint) CHECK(by_code(kind, kind, row, true) == address);
      // Corresponding samples stay together.
      if (!augments(row))
        for (size_t i = 0; i < address.y.size(); ++i) REQUIRE(address.x.at(4 * i) == address.y[i]);
    }
}

TEST_CASE("wrapped streams: mixed kinds of producers give the same results as one kind") {
  const size_t rewinds = 0, once = 1, by_number = 6;
  for (const Row& row : rows()) {
    INFO(row.address);
    const Outcome alike = by_address(by_number, by_number, row.address);
    REQUIRE(alike.error.empty());
    for (const auto& [x, y] : {std::pair{rewinds, once}, std::pair{once, rewinds}, std::pair{once, by_number}}) {
      CHECK(by_address(x, y, row.address) == alike);
      CHECK(by_code(x, y, row, row.joint) == alike);
    }
  }
}

namespace {

// Returns a file of two tensors, "x" and "y", with the samples of all kinds.
std::string file_of_both() {
  std::string numbers;
  for (const bool target : {false, true})
    for (uint64_t n = 0; n < kSamples; ++n) {
      const HTensor s = sample(n, target);
      numbers.append(reinterpret_cast<const char*>(s.data<float>()), s.size() * sizeof(float));
    }
  const std::string header = R"({"x":{"dtype":"F32","shape":[60,2,2],"data_offsets":[0,960]},)"
                             R"("y":{"dtype":"F32","shape":[60,1],"data_offsets":[960,1200]}})";
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + numbers;
}

}  // namespace

TEST_CASE("wrapped streams: two tensors of one file give the same results as one kind") {
  char path[] = "/tmp/harmonics-both-XXXXXX.safetensors";
  const int descriptor = ::mkstemps(path, 12);
  REQUIRE(descriptor >= 0);
  const std::string bytes = file_of_both();
  REQUIRE(::write(descriptor, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  ::close(descriptor);
  for (const Row& row : rows()) {
    INFO(row.address);
    const std::string options = *row.address ? "?" + std::string(row.address) : "";
    for (const bool both : {false, true}) {
      if (both && !row.joint) continue;
      HarmonicGraph g = graph_with_kinds();
      const Outcome of_file = outcome(g, [&] {
        g.bindProducer("x", "file:" + std::string(path) + options + "#x");
        g.bindProducer("y", "file:" + std::string(path) + (both ? options : "") + "#y");
      });
      CHECK(of_file.error.empty());
      INFO(of_file.error);
      CHECK(of_file == by_address(6, 6, row.address));
    }
  }
  ::unlink(path);
}

TEST_CASE("wrapped streams: batches in code set the step's batch, not the sample's shape") {
  HarmonicGraph g = graph_with_kinds();
  g.bindProducer("x", std::make_shared<BatchProducer>(made(Kind::Rewinds, false), 10));
  g.bindProducer("y", std::make_shared<BatchProducer>(made(Kind::Rewinds, true), 10));
  FitOptions options;
  options.epochs = 2;
  const FitReport r = g.fit(options);
  CHECK(r.steps == 12);
  CHECK(r.samples == 120);
  CHECK(g.infer({{"x", sample(3, false)}, {"y", sample(3, true)}}).at("o").shape() == Shape{1});
}

TEST_CASE("wrapped streams: streams that graphs cannot read together are refused") {
  const auto error = [](const std::function<ProducerPtr(ProducerPtr)>& x,
                        const std::function<ProducerPtr(ProducerPtr)>& y) {
    HarmonicGraph g = graph_with_kinds();
    return outcome(g,
                   [&] {
                     g.bindProducer("x", x(made(Kind::Rewinds, false)));
                     g.bindProducer("y", y(made(Kind::Rewinds, true)));
                   })
        .error;
  };
  const auto same = [](ProducerPtr p) { return p; };
  CHECK(error(around<ShuffleProducer>(8, 1), around<ShuffleProducer>(8, 2)) ==
        "'seed=2' of 'y' disagrees with seed=1 of a stream it is joined with");
  CHECK(error(around<BatchProducer>(8), around<BatchProducer>(9)) ==
        "'batch=9' of 'y' disagrees with batch=8 of a stream it is joined with");
  CHECK(error([](ProducerPtr p) { return std::make_shared<ShuffleProducer>(std::make_shared<BatchProducer>(p, 5), 4); },
              same)
            .find("a graph makes batches of samples itself") == 0);
}
