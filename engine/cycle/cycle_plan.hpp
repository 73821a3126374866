// CyclePlan: what is settled before a cycle's first step: settings, streams, results, how long it goes on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/bound/harmonic_graph.hpp"
#include "engine/training/schedule.hpp"

namespace harmonics {

// Throws ErrorKind::Usage when a stop condition or an `if` of the cycle looks at validation and there is no data for
// it.
void expect_validation(HarmonicGraph& graph, int cycle, const ResolvedSettings& settings);

struct CyclePlan {
  // Throws when a producer the cycle needs is not bound.
  CyclePlan(HarmonicGraph& graph, int cycle, const RunSettings& run);

  void check_going_on();
  // What a former cycle left of reading these streams, or a reader of its own.
  void take_reader();

  std::string name_of(int node) const { return graph.graph().nodes[static_cast<size_t>(node)].name; }
  bool is_consumer(int node) const {
    return graph.graph().nodes[static_cast<size_t>(node)].kind == DeclarationKind::Consumer;
  }
  // How long the schedule of the learning rate is.
  Horizon horizon() const;

  HarmonicGraph& graph;
  int cycle;
  const RunSettings& run;
  ResolvedSettings settings;
  bool training;
  Executor& executor;
  std::vector<int> producers;  // that feed this cycle, in the order of the reader's members
  std::vector<int> wanted;     // nodes whose values somebody takes
  std::unique_ptr<JointReader> reader;
  uint64_t size = 0;  // joint samples in a pass; 0: unbounded or unknown
  uint64_t batch = 1;
  int64_t epochs = -1;  // below zero: until something else ends it
  bool live = false;
  bool once = false;                // a stream is live, or can be read once only
  bool goes_on = false;             // a later cycle or run goes on in these streams, so none is read that no step uses
  std::optional<LiveReading> from;  // where a former cycle stopped in them; its reader is this plan's
  int64_t window = 0;  // samples that are predicted before they are learned, of which means are kept; 0: none
};

}  // namespace harmonics
