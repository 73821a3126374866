#include "engine/cli/run/prepared.hpp"

#include <algorithm>
#include <thread>

#include <fmt/core.h>

#include "engine/execution/device_peaks.hpp"

namespace harmonics::engine::cli {

int cycle_of(const BoundGraph& graph, const Options& options) {
  const auto cycles = static_cast<int64_t>(graph.graph().cycles.size());
  if (options.cycle > cycles)
    throw Error(ErrorKind::Usage,
                fmt::format("there is no cycle {}: '{}' has {}", options.cycle, graph.graph().name, cycles), {},
                {"--cycle counts from 1"});
  return static_cast<int>(options.cycle - 1);
}

PreparedSettings prepared_settings(BoundGraph& graph, const Options& options, int64_t batch, int threads) {
  const int cycle = cycle_of(graph, options);
  const ResolvedSettings resolved = graph.settings(cycle, options.run);
  return {{options.run}, cycle, graph.graph().trains(cycle), batch, threads, resolved.seed, resolved};
}

int all_threads() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

std::unique_ptr<MachinePeaks> peaks_of(const PreparedSettings& settings) {
  return make_peaks(settings, Registry::global(), settings.threads);
}

}  // namespace harmonics::engine::cli
