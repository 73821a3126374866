#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "consumers/register.hpp"
#include "engine/streams/stream_source.hpp"
#include "producers/http_samples.hpp"
#include "producers/register.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

Source open(const RegisteredItem& item, const std::string& path, const Options& options) {
  return Source::open("s", *static_cast<const hx_producer_factory_vt*>(item.vtable), item.self, path, options.view());
}
Sink open_sink(const RegisteredItem& item, const std::string& path, const Options& options) {
  return Sink::open("s", *static_cast<const hx_consumer_factory_vt*>(item.vtable), item.self, path, options.view());
}

// Loads the digits plugin as a host does, and keeps it loaded.
class DigitsPlugin {
 public:
  DigitsPlugin() {
    const std::string path = HARMONICS_BINARY_DIR "/lib/harmonics/plugins/libharmonics_synth.so";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    INFO((library ? "" : dlerror()));
    REQUIRE(library != nullptr);
    const auto start = reinterpret_cast<void (*)(FunctionRegistry&)>(dlsym(library, "harmonics_register"));
    REQUIRE(start != nullptr);
    start(registry_.face());
  }
  const RegisteredItem& item() { return registry_.producer("synth"); }

 private:
  RecordingRegistry registry_;
};
DigitsPlugin& plugin() {
  static DigitsPlugin it;
  return it;
}

std::vector<uint8_t> read_all(Source source) {
  std::vector<uint8_t> bytes(source.info().size * source.sample_bytes());
  CHECK(source.read(source.info().size, bytes.data()) == source.info().size);
  return bytes;
}

}  // namespace

TEST_CASE("the built-in streams register like those of a plugin") {
  RecordingRegistry registry;
  register_builtin_producers(registry.face());
  register_builtin_consumers(registry.face());
  CHECK(registry.size() == 7);  // file: twice, memory: twice, stdin:, http:, stdout:
  const auto& options = registry.producer("file").arguments;
  CHECK(std::find(options.begin(), options.end(), "window") != options.end());
  const TemporaryFolder folder;
  Sink sink = open_sink(registry.consumer("file"), folder.path("x.csv"), {});
  const float rows[] = {1, 2, 3, 4};
  sink.push(DType::F32, {2}, 2, rows);
  sink.finish();
  Source source = open(registry.producer("file"), folder.path("x.csv"), Options{{"#", "1"}, {"as", "number"}});
  CHECK(source.info().sample == Shape{});
  float column[2];
  CHECK(source.read(2, column) == 2);
  CHECK(column[1] == 4);
  const std::string none = folder.path("none");
  CHECK(refusal([&] { open(registry.producer("file"), none, {}); }) ==
        "stream 's': cannot read '" + none + "': No such file or directory");
}

TEST_CASE("a text's symbols pass through the C table") {
  RecordingRegistry registry;
  register_builtin_producers(registry.face());
  const TemporaryFolder folder;
  const Source source = open(registry.producer("file"), folder.write("x.txt", "b\xC3\xA9 b"), Options{{"window", "2"}});
  CHECK(source.info().symbols == std::vector<std::string>{" ", "b", "\xC3\xA9"});
  CHECK(source.info().classes == 3);
  CHECK(source.info().position_axes == 1);
}

TEST_CASE("memory: returns the samples it was given") {
  RecordingRegistry registry;
  register_builtin_producers(registry.face());
  Sink sink = open_sink(registry.consumer("memory"), "box", {});
  CHECK(refusal([&] { open(registry.producer("memory"), "box", {}); }) ==
        "stream 's': memory:box has no sampless; a consumer memory:box of this process fills it");
  for (int32_t i = 0; i < 3; ++i) sink.push(HTensor(DType::I32, {}, &i));
  Source source = open(registry.producer("memory"), "box", {});
  int32_t values[4];
  CHECK(source.read(4, values) == 3);
  CHECK(values[2] == 2);
}

TEST_CASE("digits depend on seed and number only") {
  const auto pictures = read_all(open(plugin().item(), "digits", Options{{"size", "300"}, {"seed", "7"}}));
  CHECK(read_all(open(plugin().item(), "digits", Options{{"size", "300"}, {"seed", "7"}})) == pictures);
  const auto more = read_all(open(plugin().item(), "digits", Options{{"size", "400"}, {"seed", "7"}}));
  CHECK(std::equal(pictures.begin(), pictures.end(), more.begin()));
  CHECK(read_all(open(plugin().item(), "digits", Options{{"size", "300"}, {"seed", "8"}})) != pictures);
  Source one_by_one = open(plugin().item(), "digits", Options{{"size", "300"}, {"seed", "7"}});
  for (size_t i = 0; i < 300; ++i) CHECK(std::memcmp(one_by_one.next().bytes(), &pictures[i * 784], 784) == 0);
  CHECK(!one_by_one.next());
  uint64_t hash = 14695981039346656037u;
  for (const uint8_t p : pictures) hash = (hash ^ p) * 1099511628211u;
  CHECK(hash == 0x8237c3b57c3cae6eu);  // the same on every machine
}

TEST_CASE("digits come with their labels, all ten equally often") {
  Source labels = open(plugin().item(), "digits", Options{{"size", "20000"}, {"#", "label"}});
  CHECK(labels.info().classes == 10);
  CHECK(labels.info().sample == Shape{});
  CHECK(labels.info().dtype == DType::U8);
  std::vector<int> counts(10);
  for (const uint8_t d : read_all(std::move(labels))) ++counts.at(d);
  for (const int c : counts) CHECK(std::abs(c - 2000) < 200);
}

TEST_CASE("the nearest mean tells most digits apart, not all") {
  constexpr size_t n = 4000;
  const auto pictures = read_all(open(plugin().item(), "digits", Options{{"size", "4000"}})),
             labels = read_all(open(plugin().item(), "digits", Options{{"size", "4000"}, {"#", "label"}}));
  std::vector<double> mean(10 * 784), count(10);
  for (size_t i = 0; i < n / 2; ++i) {
    ++count[labels[i]];
    for (size_t k = 0; k < 784; ++k) mean[labels[i] * 784u + k] += pictures[i * 784 + k];
  }
  int right = 0;
  for (size_t i = n / 2; i < n; ++i) {
    size_t best = 0;
    double least = 1e300;
    for (size_t d = 0; d < 10; ++d) {
      double distance = 0;
      for (size_t k = 0; k < 784; ++k) distance += std::pow(mean[d * 784 + k] / count[d] - pictures[i * 784 + k], 2);
      if (distance < least) least = distance, best = d;
    }
    right += best == labels[i];
  }
  const double accuracy = right / (n / 2.0);
  CHECK(accuracy > 0.55);
  CHECK(accuracy < 0.90);
}

TEST_CASE("unbounded digits, and requests the plugin refuses") {
  Source endless = open(plugin().item(), "digits", Options{{"size", "0"}, {"#", "label"}});
  CHECK(endless.info().size == 0);
  CHECK(endless.skip(30000) == 30000);
  CHECK(refusal([&] { open(plugin().item(), "digts", {}); }) ==
        "stream 's': synth:digts is unknown; this plugin draws synth:digits");
  CHECK(refusal([&] {
          open(plugin().item(), "digits", Options{{"#", "labels"}});
        }) ==
        "stream 's': synth:digits has no field 'labels'; write synth:digits for the pictures or synth:digits#label for "
        "the labels");
  CHECK(refusal([&] {
          open(plugin().item(), "digits", Options{{"size", "-1"}});
        }) == "stream 's': synth:digits: size=-1 is not a number of samples; 0 means endless");
}

TEST_CASE("http: senders wait for a producer that is declared and not open") {
  SentAnswer answer;
  const auto send = [&](const std::string& name) {
    send_by_http(name, {"application/json", "{}"}, [&](const SentAnswer& given) { answer = given; });
    return answer.status;
  };
  expect_http("declared");
  CHECK(send("declared") == 503);
  CHECK(answer.error == "the run is starting or ending");
  CHECK(send("unknown") == 404);
}
