// Prepares one cycle of a graph with its samples in memory, for profile and bench.
#pragma once

#include <memory>

#include "engine/bound/prepared_step.hpp"
#include "engine/cli/options/options.hpp"
#include "engine/execution/machine.hpp"

namespace harmonics::engine::cli {

// Returns the index, from 0, of the cycle of --cycle.
int cycle_of(const BoundGraph& graph, const Options& options);
PreparedSettings prepared_settings(BoundGraph& graph, const Options& options, int64_t batch, int threads);
int all_threads();
// Measures the peaks of the device that runs the step.
std::unique_ptr<MachinePeaks> peaks_of(const PreparedSettings& settings);

}  // namespace harmonics::engine::cli
