// What profile and bench share: one cycle of a graph, its samples in memory.
#pragma once

#include <memory>

#include "engine/bound/prepared_step.hpp"
#include "engine/cli/options.hpp"
#include "engine/execution/machine.hpp"

namespace harmonics::cli {

// The cycle --cycle names, from 0.
int cycle_of(const HarmonicGraph& graph, const Options& options);
PreparedSettings prepared_settings(HarmonicGraph& graph, const Options& options, int64_t batch, int threads);
int all_threads();
// Of the device that the step runs on.
std::unique_ptr<Yardsticks> yardsticks_of(const PreparedSettings& settings);

}  // namespace harmonics::cli
