// Streams: reading IDX files, shuffling and batching, and the cost of the flow graph around a step.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <harmonics/philox.hpp>

#include "dsl/load.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "tests/bench/measure.hpp"

namespace harmonics::engine::bench {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kImages = 20000, kSide = 28;

const char kDigits[] = R"(harmonic digits {
  producer images;
  producer labels 1/1 images;
  layer input;
  layer output;
  cycle {
    images -> input -> output;
    output <-(cross_entropy)- labels;
  }
})";

// The smallest possible flow, so that the overhead remains.
const char kTiny[] = R"(harmonic tiny {
  producer numbers {16};
  layer input;
  layer output {4};
  cycle { numbers -> input -> output; }
})";

// Two IDX files of random bytes in a temporary folder.
class DigitFiles {
 public:
  DigitFiles() {
    std::string name = (fs::temp_directory_path() / "harmonics-bench-XXXXXX").string();
    if (!mkdtemp(name.data())) throw Error(ErrorKind::Output, fmt::format("'{}' cannot be made", name));
    folder_ = name;
    write(images(), 0x803, {kImages, kSide, kSide}, 256);
    write(labels(), 0x801, {kImages}, 10);
  }
  ~DigitFiles() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  std::string images() const { return (folder_ / "images-idx3-ubyte").string(); }
  std::string labels() const { return (folder_ / "labels-idx1-ubyte").string(); }

 private:
  static void write(const std::string& path, uint32_t magic, const std::vector<int64_t>& dims, uint32_t below) {
    std::string bytes;
    const auto word = [&](uint32_t w) {
      for (int shift : {24, 16, 8, 0}) bytes += static_cast<char>(w >> shift);
    };
    word(magic);
    int64_t count = 1;
    for (int64_t d : dims) {
      word(static_cast<uint32_t>(d));
      count *= d;
    }
    PhiloxStream random(philox_key(1, magic), 0);
    for (int64_t i = 0; i < count; ++i) bytes += static_cast<char>(random.uniform() * static_cast<float>(below));
    std::ofstream(path, std::ios::binary) << bytes;
  }
  fs::path folder_;
};

Graph graph_of(const char* name, const char* text) {
  return make_graph(parse_flow(std::make_shared<SourceText>(name, text)), Registry::global());
}

void read_batches(benchmark::State& state, bool shuffle, uint64_t batch) {
  const DigitFiles files;
  const Graph graph = graph_of("digits", kDigits);
  StreamSet streams;
  streams.bind(graph, Registry::global(), "images", parse_address("file:" + files.images()));
  streams.bind(graph, Registry::global(), "labels", parse_address("file:" + files.labels()));
  const auto reader = streams.reader(graph, {graph.find("images"), graph.find("labels")}, batch, shuffle, 1);
  std::vector<std::vector<std::byte>> buffers;
  std::vector<void*> targets;
  for (size_t i = 0; i < reader->members(); ++i) buffers.emplace_back(reader->bytes(i) * batch);
  for (auto& b : buffers) targets.push_back(b.data());
  const double bytes = static_cast<double>(reader->bytes(0) + reader->bytes(1));
  uint64_t epoch = 0, samples = 0;
  reader->begin(epoch);
  for (auto _ : state) {
    uint64_t n = reader->read(targets.data());
    if (n == 0) {
      reader->begin(++epoch);
      n = reader->read(targets.data());
    }
    samples += n;
  }
  state.counters["samples/s"] = benchmark::Counter(static_cast<double>(samples), benchmark::Counter::kIsRate);
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(samples) * bytes / 1e9, benchmark::Counter::kIsRate);
}

// Unlimited samples at no cost.
class Constant : public Producer {
 public:
  HTensor next() override { return HTensor(DType::F32, Shape{16}); }
  size_t size() const override { return 0; }
  bool rewind() override { return true; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.sample = Shape{16};
    return info;
  }
  int64_t read(uint64_t n, void* to) override {
    std::fill_n(static_cast<float*>(to), n * 16, 0.5f);
    return static_cast<int64_t>(n);
  }
};

RunSettings tiny_run(int threads) {
  RunSettings run;
  run.batch = 1;
  run.threads = threads;
  return run;
}

void step_alone(benchmark::State& state, int threads) {
  BoundGraph graph(graph_of("tiny", kTiny));
  graph.assume_declared_streams();
  LoweringOptions options;
  options.mode = Mode::infer;
  options.wanted = graph.results(0);
  CompiledStep step(graph.lower(options), graph.store(), graph.executor(threads), {});
  const std::vector<float> numbers(16, 0.5f);
  const void* const pointers[] = {numbers.data()};
  step.set(pointers, 0, 1, 0);
  for (auto _ : state) step.run();
}

void step_in_flow_graph(benchmark::State& state, int threads) {
  BoundGraph graph(graph_of("tiny", kTiny));
  graph.streams().bind(graph.graph(), graph.graph().find("numbers"), Source("numbers", std::make_shared<Constant>()));
  RunSettings run = tiny_run(threads);
  run.steps = static_cast<int64_t>(state.max_iterations);
  CycleRuntime runtime(graph, 0, run);
  double seconds = 0;
  bool ran = false;
  for (auto _ : state) {
    if (!ran) seconds = runtime.run().seconds;  // one run executes all steps of this benchmark
    ran = true;
    state.SetIterationTime(seconds / static_cast<double>(run.steps.value()));
  }
}

void add_all() {
  for (uint64_t batch : {1, 64, 256}) {
    for (bool shuffle : {false, true})
      benchmark::RegisterBenchmark(fmt::format("idx{}/batch:{}/threads:1", shuffle ? "_shuffled" : "", batch).c_str(),
                                   [=](benchmark::State& state) { read_batches(state, shuffle, batch); })
          ->UseRealTime();
  }
  for (int threads : {1, 2}) {
    benchmark::RegisterBenchmark(fmt::format("tiny_step/alone/threads:{}", threads).c_str(),
                                 [=](benchmark::State& state) { step_alone(state, threads); })
        ->UseRealTime();
    benchmark::RegisterBenchmark(fmt::format("tiny_step/in_flow_graph/threads:{}", threads).c_str(),
                                 [=](benchmark::State& state) { step_in_flow_graph(state, threads); })
        ->UseManualTime();
  }
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
