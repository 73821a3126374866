// Summarises a graph as a table: layers, shapes, parameters, FLOPs, memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <boost/json/fwd.hpp>

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

struct SummaryRow {
  std::string layer, functions;  // functions of the arrows into the layer: "conv, relu"
  std::vector<int64_t> shape;    // of one sample
  int64_t parameters = 0;        // of these arrows; shared parameters count at their first use
  double flops = 0;              // of one sample, forward
};

struct SummaryStep {
  int64_t cycle = 0, batch = 0;  // cycle: counted from 1
  bool trains = false;
  double flops = 0;                 // of the whole step
  uint64_t buffers = 0, state = 0;  // bytes: buffers of a step; weights, moments and statistics
};

struct GraphSummary {
  std::vector<SummaryRow> rows;
  std::vector<SummaryStep> steps;  // by cycle
  int64_t trained = 0, frozen = 0;
  double flops = 0;  // of one sample, forward
};

// Lowers and compiles the first branch of every cycle.
GraphSummary summary_of(BoundGraph& graph, const Options& options);
std::string summary_text(const GraphSummary& summary);
boost::json::object summary_json(const GraphSummary& summary);

// Returns "11.2 MiB".
std::string bytes_text(uint64_t bytes);

}  // namespace harmonics::engine::cli
