// The planned and the measured memory of one case of a workload: peak_memory WORKLOAD BATCH THREADS [APART]. Prints
// one JSON object; exit status 1 if planned and measured differ by more than the share APART:
//
//   planned    bytes of the plan's arena, of parameters and states, and of the prepared samples
//   measured   peak bytes of aligned memory, which holds all numbers, ours and oneDNN's, during some steady steps,
//              less those before the graph was made
//   heap       the same of all memory, including the descriptions of graph and plan
//   resident   peak resident MiB of the whole process during the steps, including libraries and code
#include <cmath>
#include <cstdlib>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "tests/bench/counted_memory.hpp"
#include "tests/bench/workload.hpp"

namespace harmonics::engine::bench {

namespace {

void run(WorkloadStep& step, int times) {
  for (int i = 0; i < times; ++i) step.run();
}

// Returns the ratio of measured to planned memory.
double report(const Workload& workload, int64_t batch, int threads) {
  run(*std::make_unique<WorkloadStep>(workload, batch, threads), 3);
  const int64_t heap_before = heap.live, aligned_before = aligned.live;
  WorkloadStep step(workload, batch, threads);
  run(step, 10);
  forget_peaks();  // excludes the memory used to read the samples
  run(step, 30);
  const MemoryReport m = step.executable().memory();
  const uint64_t planned = m.arena_bytes + m.state_bytes + step.prepared_bytes();
  const int64_t measured = aligned.peak - aligned_before;
  boost::json::object o{{"name", fmt::format("{}/batch:{}/threads:{}", workload.name, batch, threads)},
                        {"arena", m.arena_bytes},
                        {"states", m.state_bytes},
                        {"samples", step.prepared_bytes()},
                        {"planned", planned},
                        {"measured", measured},
                        {"heap", heap.peak - heap_before},
                        {"resident", peak_resident()}};
  fmt::print("{}\n", boost::json::serialize(o));
  return static_cast<double>(measured) / static_cast<double>(planned);
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    fmt::print(stderr, "usage: peak_memory WORKLOAD BATCH THREADS [APART]\n");
    return 2;
  }
  try {
    const double ratio = harmonics::engine::bench::report(harmonics::engine::bench::read_workload(argv[1]),
                                                          std::atoll(argv[2]), std::atoi(argv[3]));
    if (argc == 5 && std::abs(ratio - 1) > std::atof(argv[4])) {
      fmt::print(stderr, "measured is {:.4f} of planned\n", ratio);
      return 1;
    }
  } catch (const harmonics::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
  return 0;
}
