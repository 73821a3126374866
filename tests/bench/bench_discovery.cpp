// Discovery of two hundred plugins with manifests, uncached and cached.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include <fmt/core.h>

#include "engine/plugin/discovery.hpp"
#include "tests/bench/measure.hpp"

namespace harmonics::engine::bench {

namespace {

namespace fs = std::filesystem;

constexpr int kLibraries = 200;

class Place {
 public:
  Place() {
    std::string pattern = (fs::temp_directory_path() / "harmonics_bench_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    fs::create_directories(folder_ / "plugins");
    for (int i = 0; i < kLibraries; ++i) {
      const std::string name = (folder_ / "plugins" / fmt::format("lib{:03}", i)).string();
      fs::copy_file(HARMONICS_BENCH_PLUGIN, name + ".so");
      std::ofstream(name + ".manifest") << fmt::format("activation act_{}\nloss loss_{}\n", i, i);
    }
  }
  ~Place() { fs::remove_all(folder_); }
  std::string plugins() const { return (folder_ / "plugins").string(); }
  std::string cache() const { return (folder_ / "cache").string(); }

 private:
  fs::path folder_;
};

void discover(benchmark::State& state, bool remembered) {
  const Place place;
  double best = 1;
  for (auto _ : state) {
    if (!remembered) fs::remove(place.cache());
    const auto start = std::chrono::steady_clock::now();
    Registry registry;
    announce(discover_plugins({place.plugins()}, place.cache()), registry);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    state.SetIterationTime(seconds);
    best = std::min(best, seconds);
  }
  state.counters["ms"] = best * 1e3;
  state.counters["libraries"] = kLibraries;
}

void add_all() {
  benchmark::RegisterBenchmark("discover/looked_into/threads:1", discover, false)->UseManualTime();
  benchmark::RegisterBenchmark("discover/remembered/threads:1", discover, true)->UseManualTime();
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  return harmonics::engine::bench::run_benchmarks(argc, argv, harmonics::engine::bench::add_all);
}
