// Weights stay mapped from their file until they are changed: results, files, snapshots and memory.
#include <catch2/catch.hpp>

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/cycle/snapshot.hpp"
#include "engine/model/sealed_file.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"

namespace fs = std::filesystem;
using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr int64_t kWide = 32768;  // 16 rows of it are 2 MiB: mapped
const std::string kLarge = "x.h.affine.weight", kSmall = "h.o.affine.weight";

std::string flow(const std::string& first = "affine") {
  return "harmonic g { producer x {32768}; producer y {16}; layer h {16}; layer o; cycle (epochs 1) { x -(" + first +
         ")-> h -(tanh)-> o; o <-(mse)- y; } }";
}

std::unique_ptr<BoundGraph> opened(const std::string& text, bool trains) {
  Graph graph = make_graph(parse_flow(std::make_shared<SourceText>("test.hmx", text)), Registry::global());
  if (!trains) graph.taps.clear();
  return std::make_unique<BoundGraph>(std::move(graph));
}

HTensor drawn(const Shape& shape, uint32_t seed) {
  std::vector<float> values = numbers(static_cast<size_t>(shape.count()), seed);
  for (float& v : values) v /= 64;
  return HTensor::from(shape, values);
}

struct WeightsOnDisk {
  explicit WeightsOnDisk(const std::map<std::string, HTensor>& tensors) { save_sealed({{}, tensors}, path); }
  ~WeightsOnDisk() { fs::remove(path); }
  std::string bytes() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string path = (fs::temp_directory_path() / ("mapped_" + std::to_string(::getpid()) + ".safetensors")).string();
};

std::map<std::string, HTensor> small_model() {
  return {{kLarge, drawn({16, kWide}, 1)},
          {"x.h.affine.bias", drawn({16}, 2)},
          {kSmall, drawn({16, 16}, 3)},
          {"h.o.affine.bias", drawn({16}, 4)}};
}

void load(BoundGraph& g, const WeightsOnDisk& file, bool mapped) {
  if (mapped) return g.load_weights(file.path);
  const std::string bytes = file.bytes();
  g.load_weights(read_weights(bytes.data(), bytes.size(), file.path), file.path);
}

std::vector<float> inferred(BoundGraph& g, int64_t width = kWide, int64_t samples = 3) {
  bind_rows(g, "x", {width}, numbers(static_cast<size_t>(width * samples), 9));
  const auto kept = keep(g, "");
  CycleRuntime(g, 0, settings(1)).run();
  return kept->values;
}

std::vector<std::vector<float>> trained(BoundGraph& g) {
  bind_rows(g, "x", {kWide}, numbers(kWide * 8, 9));
  bind_rows(g, "y", {16}, numbers(16 * 8, 10));
  RunSettings s = settings(4);
  s.optimizer = "sgd(lr=0.125)";
  CycleRuntime(g, 0, s).run();
  return {weights(g, kLarge), weights(g, kSmall)};
}

bool is_mapped(BoundGraph& g, const std::string& name) { return g.store().find(name)->file != nullptr; }

}  // namespace

TEST_CASE("mapped weights: inference reads them where they lie and gives the same bits") {
  const WeightsOnDisk file(small_model());
  auto copied = opened(flow(), false), mapped = opened(flow(), false);
  load(*copied, file, false);
  load(*mapped, file, true);
  const std::vector<float> expected = inferred(*copied), found = inferred(*mapped);
  REQUIRE(expected.size() == 48);
  CHECK(found == expected);
  CHECK_FALSE(is_mapped(*copied, kLarge));
  CHECK(is_mapped(*mapped, kLarge));
  CHECK_FALSE(mapped->store().find(kLarge)->storage->writable());
  CHECK_FALSE(is_mapped(*mapped, kSmall));  // too small to be worth it
}

TEST_CASE("mapped weights: training copies them before its first step and leaves the file alone") {
  const WeightsOnDisk file(small_model());
  const std::string before = file.bytes();
  auto copied = opened(flow(), true), mapped = opened(flow(), true);
  load(*copied, file, false);
  load(*mapped, file, true);
  CHECK(is_mapped(*mapped, kLarge));
  const auto expected = trained(*copied), found = trained(*mapped);
  CHECK(found == expected);
  const HTensor first = small_model().at(kLarge);
  CHECK(std::memcmp(found[0].data(), first.bytes(), found[0].size() * sizeof(float)) != 0);
  CHECK_FALSE(is_mapped(*mapped, kLarge));
  CHECK(file.bytes() == before);
}

TEST_CASE("mapped weights: frozen ones stay in the file while others train, also across a rollback") {
  const WeightsOnDisk file(small_model());
  auto copied = opened(flow("affine(freeze=true)"), true), mapped = opened(flow("affine(freeze=true)"), true);
  load(*copied, file, false);
  load(*mapped, file, true);
  const auto expected = trained(*copied), found = trained(*mapped);
  CHECK(found == expected);
  CHECK(is_mapped(*mapped, kLarge));
  CHECK(std::memcmp(found[0].data(), small_model().at(kLarge).bytes(), found[0].size() * sizeof(float)) == 0);
  TensorFile state;
  mapped->snapshot(state);
  CHECK(state.tensors.at(kLarge).bytes() == mapped->store().find(kLarge)->data());  // not a copy
  mapped->snapshot(state);                                                          // reuses the former tensors
  mapped->restore(state);
  CHECK(is_mapped(*mapped, kLarge));
  CHECK(weights(*mapped, kLarge) == found[0]);
}

TEST_CASE("mapped weights: a graph that infers first and trains later copies them in time") {
  const WeightsOnDisk file(small_model());
  auto copied = opened(flow(), true), mapped = opened(flow(), true);
  load(*copied, file, false);
  load(*mapped, file, true);
  LoweringOptions o;
  o.mode = Mode::infer;
  o.wanted = mapped->results(0);
  bind_rows(*mapped, "x", {kWide}, numbers(kWide * 8, 9));
  bind_rows(*mapped, "y", {16}, numbers(16 * 8, 10));
  const CompiledStep alive(mapped->lower(o), mapped->store(), mapped->executor(1), mapped->compile_options({}));
  CHECK_FALSE(is_mapped(*mapped, kLarge));
  const void* const read_at = mapped->store().find(kLarge)->data();
  const auto expected = trained(*copied), found = trained(*mapped);
  CHECK(found == expected);
  CHECK(mapped->store().find(kLarge)->data() == read_at);  // programs compiled earlier see the new values
}

TEST_CASE("mapped weights: saving to the mapped file replaces it and changes nothing") {
  const WeightsOnDisk file(small_model());
  auto g = opened(flow(), false);
  load(*g, file, true);
  const std::vector<float> expected = inferred(*g);
  const std::string before = file.bytes();
  save_sealed({{}, g->weights().tensors}, file.path);
  CHECK(file.bytes() == before);
  g->sinks().clear();
  CHECK(inferred(*g) == expected);
}

TEST_CASE("weights version: loaded weights keep their step until training changes them") {
  auto learner = opened(flow(), true);
  CHECK_FALSE(learner->version());
  CHECK(learner->weights().metadata.count("harmonics.step") == 0);
  trained(*learner);
  REQUIRE(learner->version());
  const int64_t steps = learner->version()->step;
  CHECK(steps == 2);
  auto g = opened(flow(), false);
  g->load_weights(learner->weights(), "w");
  inferred(*g);
  CHECK(g->version() == WeightsVersion{0, steps});
  CHECK(g->weights().metadata.at("harmonics.step") == std::to_string(steps));
  TensorFile before = learner->weights();
  before.metadata.erase("harmonics.step");
  g->load_weights(std::move(before), "w");
  CHECK_FALSE(g->version());
}

TEST_CASE("mapped weights: a file that becomes shorter fails the step that reads it") {
  const WeightsOnDisk file(small_model());
  auto g = opened(flow(), false);
  load(*g, file, true);
  REQUIRE(inferred(*g).size() == 48);
  fs::resize_file(file.path, 4096);
  g->sinks().clear();
  CHECK(message_of([&] { inferred(*g); }).find("became shorter while it was read") != std::string::npos);
}

TEST_CASE("mapped weights: snapshots share what nothing changes and copy the rest") {
  const WeightsOnDisk file(small_model());
  auto infers = opened(flow(), false), trains = opened(flow("affine(freeze=true)"), true);
  load(*infers, file, true);
  load(*trains, file, true);
  inferred(*infers);
  trained(*trains);
  const auto shared = [](BoundGraph& g, const std::string& name) {
    const auto snapshots = std::make_shared<Snapshots>(g.store(), WeightsVersion{});
    const auto newest = snapshots->newest();
    const StoredTensor& t = newest->weights().all().at(name);
    CHECK(std::memcmp(t.data(), g.store().find(name)->data(), t.type.bytes()) == 0);
    return t.storage == g.store().find(name)->storage;
  };
  CHECK(shared(*infers, kLarge));
  CHECK(shared(*infers, kSmall));
  CHECK(shared(*trains, kLarge));
  CHECK_FALSE(shared(*trains, kSmall));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

struct Memory {
  uint64_t resident = 0, anonymous = 0;  // bytes
};

Memory memory_now() {
  Memory m;
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    const auto value = [&](const char* key, uint64_t& to) {
      if (line.starts_with(key)) to = std::stoull(line.substr(std::strlen(key))) << 10;
    };
    value("Rss:", m.resident);
    value("Anonymous:", m.anonymous);
  }
  return m;
}

struct Opened {
  Memory growth;
  uint32_t results = 0;
  float values[64];
};

// Opens the weights and infers once, in a separate process.
Opened opened_apart(const std::string& text, const WeightsOnDisk& file, int64_t width, bool mapped) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Opened result;
    ::malloc_trim(0);  // otherwise memory freed by earlier tests would be reused, and not measured
    const Memory before = memory_now();
    auto g = opened(text, false);
    load(*g, file, mapped);
    const std::vector<float> values = inferred(*g, width, 1);
    const Memory now = memory_now();
    result.growth = {now.resident - before.resident, now.anonymous - before.anonymous};
    result.results = static_cast<uint32_t>(values.size());
    std::copy_n(values.begin(), std::min<size_t>(values.size(), 64), result.values);
    ::_exit(::write(ends[1], &result, sizeof result) == sizeof result ? 0 : 1);
  }
  ::close(ends[1]);
  Opened result;
  const auto got = ::read(ends[0], &result, sizeof result);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(status == 0);
  REQUIRE(got == sizeof result);
  return result;
}

}  // namespace

TEST_CASE("mapped weights: opening a large model takes little memory of its own") {
  constexpr uint64_t kMega = uint64_t{1} << 20;
  const std::string text =
      "harmonic g { producer x {4096}; layer h {5120}; layer k {4096}; layer m {5120}; layer o {16}; cycle (epochs 1) "
      "{ x -(relu)-> h -(relu)-> k -(relu)-> m -> o; } }";
  const WeightsOnDisk file({{"x.h.affine.weight", drawn({5120, 4096}, 1)},
                            {"x.h.affine.bias", drawn({5120}, 2)},
                            {"h.k.affine.weight", drawn({4096, 5120}, 3)},
                            {"h.k.affine.bias", drawn({4096}, 4)},
                            {"k.m.affine.weight", drawn({5120, 4096}, 5)},
                            {"k.m.affine.bias", drawn({5120}, 6)},
                            {"m.o.affine.weight", drawn({16, 5120}, 7)},
                            {"m.o.affine.bias", drawn({16}, 8)}});
  const uint64_t size = fs::file_size(file.path);
  REQUIRE(size > 240 * kMega - kMega);
  const Opened mapped = opened_apart(text, file, 4096, true), copied = opened_apart(text, file, 4096, false);
  CHECK(copied.growth.anonymous > size - kMega);  // the measurement detects a copy
  CHECK(mapped.growth.anonymous <= 32 * kMega);
  CHECK(mapped.growth.resident <= size + 64 * kMega);
  REQUIRE(mapped.results == 16);
  CHECK(std::memcmp(mapped.values, copied.values, 16 * sizeof(float)) == 0);
}

#endif
