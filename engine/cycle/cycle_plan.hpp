// CyclePlan: everything decided before the first step of a cycle: settings, streams, results, when it ends.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"
#include "engine/training/schedule.hpp"

namespace harmonics::engine {

// Throws ErrorKind::Usage if a stop condition or an `if` of the cycle reads a validation metric without validation
// data.
void expect_validation(BoundGraph& graph, int cycle, const ResolvedSettings& settings);

struct CyclePlan {
  // Throws if a producer that the cycle needs is not bound.
  CyclePlan(BoundGraph& graph, int cycle, const RunSettings& run);

  void check_going_on();
  // Takes over the reader that the previous cycle left for these streams, or creates a new one.
  void take_reader();

  std::string name_of(int node) const { return graph.graph().nodes[static_cast<size_t>(node)].name; }
  bool is_consumer(int node) const {
    return graph.graph().nodes[static_cast<size_t>(node)].kind == DeclarationKind::Consumer;
  }
  // Returns the length of the learning rate schedule.
  Horizon horizon() const;

  BoundGraph& graph;
  int cycle;
  const RunSettings& run;
  ResolvedSettings settings;
  bool training;
  Executor& executor;
  std::vector<int> producers;  // producers of this cycle, in the order of the reader's members
  std::vector<int> wanted;     // nodes whose values have a consumer
  std::unique_ptr<JointReader> reader;
  uint64_t size = 0;  // joint samples in a pass; 0 if unbounded or unknown
  uint64_t batch = 1;
  int64_t epochs = -1;  // negative: unlimited
  bool live = false;
  bool once = false;                // a stream is live or can be read only once
  bool goes_on = false;             // a later cycle or run continues these streams: read only what steps use
  std::optional<LiveReading> from;  // where the previous cycle stopped; its reader is now this plan's
  int64_t window = 0;               // test-then-train: samples in the window of the means; 0 for none
};

}  // namespace harmonics::engine
