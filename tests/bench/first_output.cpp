// Opens a model of `MEGABYTES` and computes its first output, compared with a sum over a fresh mapping of the same
// file.
//   first_output [MEGABYTES] [ROUNDS] [ROWS] [WIDTH]
// Matrices are 4096 by WIDTH (5120: 80 MiB); products of 48 or more rows pack them. Runs with one row and with ROWS
// rows: without packed weights on disk, with an empty folder for them, and with those of the previous run. Rounds
// alternate. Prints the best time of each, its ratio to the sum, and the resident memory at the output. The file is in
// the page cache.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <vector>

#include <fmt/core.h>
#include <unistd.h>

#include "dsl/load.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "engine/model/packed_files.hpp"
#include "engine/model/safetensors.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

constexpr int64_t kNarrow = 4096;
int64_t wide = 5120;

class Rows final : public Producer {
 public:
  explicit Rows(int64_t rows) : rows_(rows) {}
  HTensor next() override {
    if (given_ == rows_) return {};
    ++given_;
    return HTensor::from(Shape{kNarrow}, std::vector<float>(kNarrow, 0.5f));
  }
  std::size_t size() const override { return static_cast<std::size_t>(rows_); }
  bool rewind() override {
    given_ = 0;
    return true;
  }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.dtype = DType::F32;
    info.sample = Shape{kNarrow};
    info.size = rows_;
    return info;
  }

 private:
  int64_t rows_, given_ = 0;
};

uint64_t resident_bytes() {
  unsigned long long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*u %llu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

class Counted final : public Consumer {
 public:
  void push(const HTensor& sample) override {
    if (numbers == 0) resident = resident_bytes();
    numbers += sample.size();
  }
  int64_t numbers = 0;
  uint64_t resident = 0;  // at the first output
};

int64_t width(int layer) { return layer % 2 == 0 ? kNarrow : wide; }

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

struct FirstOutput {
  double seconds = 1e9;
  uint64_t resident = 0;  // bytes that became resident
};

// `packed`: folder of packed weights; "": none.
void first_output(FirstOutput& best, const std::string& path, int matrices, int64_t rows, const std::string& packed) {
  const uint64_t before = resident_bytes();
  const auto start = std::chrono::steady_clock::now();
  BoundGraph g(
      make_graph(parse_flow(std::make_shared<SourceText>("bench.hmx", flow_of(matrices))), Registry::global()));
  if (!packed.empty()) g.store().keep_packed(std::make_shared<PackedFiles>(packed, uint64_t{1} << 50));
  g.load_weights(path);
  g.streams().bind(g.graph(), g.graph().find("x"), Source("x", std::make_shared<Rows>(rows)));
  const auto counted = std::make_shared<Counted>();
  g.bind_consumer(-1, Sink("counted", counted));
  RunSettings settings;
  settings.batch = rows;
  settings.threads = 1;
  CycleRuntime runtime(g, 0, settings);
  runtime.run();
  best.seconds =
      std::min(best.seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  best.resident = counted->resident - std::min(before, counted->resident);
  if (counted->numbers != rows * width(matrices)) throw Error(ErrorKind::Internal, "the model gave no output");
}

uint64_t sum_of(const std::string& path) {
  const auto file = MappedFile::open(path);
  const auto* words = static_cast<const uint64_t*>(file->data());
  return std::accumulate(words, words + file->bytes() / sizeof *words, uint64_t{0});
}

}  // namespace

int main(int argc, char** argv) {
  const int megabytes = argc > 1 ? std::atoi(argv[1]) : 2048, rounds = argc > 2 ? std::atoi(argv[2]) : 9,
            rows = argc > 3 ? std::atoi(argv[3]) : 48;
  if (argc > 4) wide = std::max(1, std::atoi(argv[4]));
  const int matrices = std::max<int>(1, static_cast<int>(megabytes / std::max<int64_t>(1, wide * kNarrow * 4 >> 20)));
  namespace fs = std::filesystem;
  const std::string path =
                        (fs::temp_directory_path() / fmt::format("first_output_{}.safetensors", ::getpid())).string(),
                    packed = path + ".packed";
  int status = 0;
  try {
    write_model(path, matrices);
    double sum = 1e9;
    struct Case {
      int64_t rows;
      FirstOutput without, packing, kept;
    };
    std::vector<Case> cases = {{1, {}, {}, {}}, {rows, {}, {}, {}}};
    uint64_t total = 0;
    for (int i = 0; i < rounds; ++i) {
      sum = std::min(sum, seconds([&] { total += sum_of(path); }));
      for (Case& c : cases) {
        first_output(c.without, path, matrices, c.rows, "");
        fs::remove_all(packed);
        first_output(c.packing, path, matrices, c.rows, packed);
        first_output(c.kept, path, matrices, c.rows, packed);
      }
    }
    const double mebibyte = 1 << 20, file = static_cast<double>(fs::file_size(path)) / mebibyte;
    fmt::print("{:.0f} MiB: sum over a fresh mapping {:.3f} s ({:x})\n", file, sum, total);
    const auto print_row = [&](int64_t of_rows, const char* what, const FirstOutput& first) {
      fmt::print("  {:>4} rows, {:<24} {:8.3f} s  ratio {:5.2f}  resident: the file's size {:+.0f} MiB\n", of_rows,
                 what, first.seconds, first.seconds / sum, static_cast<double>(first.resident) / mebibyte - file);
    };
    for (const Case& c : cases) {
      print_row(c.rows, "nothing kept on disk", c.without);
      print_row(c.rows, "first packing", c.packing);
      print_row(c.rows, "packed weights on disk", c.kept);
    }
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    status = 1;
  }
  fs::remove(path);
  fs::remove_all(packed);
  return status;
}
