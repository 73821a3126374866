// Opens a model of `MEGABYTES` and computes its first output, beside a sum over a fresh mapping of the same file.
//   first_output [MEGABYTES] [ROUNDS]
// Rounds alternate; the best time of each is printed, and their ratio. The file is in the page cache.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include <fmt/core.h>
#include <unistd.h>

#include "dsl/load.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "engine/model/safetensors.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

constexpr int64_t kNarrow = 4096, kWide = 5120;  // a matrix is 80 MiB

class OneSample final : public Producer {
 public:
  HTensor next() override {
    if (given_) return {};
    given_ = true;
    return HTensor::from(Shape{kNarrow}, std::vector<float>(kNarrow, 0.5f));
  }
  std::size_t size() const override { return 1; }
  bool rewind() override {
    given_ = false;
    return true;
  }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.dtype = DType::F32;
    info.sample = Shape{kNarrow};
    info.size = 1;
    return info;
  }

 private:
  bool given_ = false;
};

class Counted final : public Consumer {
 public:
  void push(const HTensor& sample) override { numbers += sample.size(); }
  int64_t numbers = 0;
};

int64_t width(int layer) { return layer % 2 == 0 ? kNarrow : kWide; }

std::string flow_of(int matrices) {
  std::string layers, arrows = "x";
  for (int i = 1; i <= matrices; ++i) {
    layers += fmt::format("layer l{} {{{}}}; ", i, width(i));
    arrows += fmt::format(" -(tanh)-> l{}", i);
  }
  return "harmonic g { producer x {4096}; " + layers + "cycle (epochs 1) { " + arrows + "; } }";
}

void write_model(const std::string& path, int matrices) {
  TensorFile file;
  for (int i = 1; i <= matrices; ++i) {
    const std::string name = fmt::format("{}.l{}.affine", i == 1 ? "x" : fmt::format("l{}", i - 1), i);
    const Shape shape{width(i), width(i - 1)};
    std::vector<float> numbers(static_cast<size_t>(shape.count()));
    auto state = static_cast<uint32_t>(i);
    for (float& n : numbers) {
      state = state * 1664525u + 1013904223u;
      n = static_cast<float>(state >> 8) / static_cast<float>(1 << 29) - 1.0f / 64;
    }
    file.tensors[name + ".weight"] = HTensor::from(shape, numbers);
    file.tensors[name + ".bias"] = HTensor::from(Shape{width(i)}, std::vector<float>(static_cast<size_t>(width(i))));
  }
  save_safetensors(file, path);
}

template <typename Body>
double seconds(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void first_output(const std::string& path, int matrices) {
  BoundGraph g(
      make_graph(parse_flow(std::make_shared<SourceText>("bench.hmx", flow_of(matrices))), Registry::global()));
  g.load_weights(path);
  g.streams().bind(g.graph(), g.graph().find("x"), Source("x", std::make_shared<OneSample>()));
  const auto counted = std::make_shared<Counted>();
  g.bind_consumer(-1, Sink("counted", counted));
  RunSettings settings;
  settings.batch = 1;
  settings.threads = 1;
  CycleRuntime(g, 0, settings).run();
  if (counted->numbers != width(matrices)) throw Error(ErrorKind::Internal, "the model gave no output");
}

uint64_t sum_of(const std::string& path) {
  const auto file = MappedFile::open(path);
  const auto* words = static_cast<const uint64_t*>(file->data());
  return std::accumulate(words, words + file->bytes() / sizeof *words, uint64_t{0});
}

}  // namespace

int main(int argc, char** argv) {
  const int megabytes = argc > 1 ? std::atoi(argv[1]) : 2048, rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  const int matrices = std::max(1, megabytes / 80);
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("first_output_{}.safetensors", ::getpid())).string();
  int status = 0;
  try {
    write_model(path, matrices);
    double sum = 1e9, first = 1e9;
    uint64_t total = 0;
    for (int i = 0; i < rounds; ++i) {
      sum = std::min(sum, seconds([&] { total += sum_of(path); }));
      first = std::min(first, seconds([&] { first_output(path, matrices); }));
    }
    fmt::print("{} MiB: first output {:.3f} s, sum over a fresh mapping {:.3f} s ({:x}), ratio {:.2f}\n",
               std::filesystem::file_size(path) >> 20, first, sum, total, first / sum);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    status = 1;
  }
  std::filesystem::remove(path);
  return status;
}
