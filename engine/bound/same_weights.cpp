#include "engine/bound/same_weights.hpp"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

struct Tensors {
  std::map<std::string, TensorType> weights, results;
};

// Adds the tensors of one entry. Lowers into a store of its own, so that the weights of the run stay as they are.
void add_tensors(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 const LoweringOptions& options, Tensors& to) {
  ParameterStore store;
  store.reserve_only();
  const Lowered lowered = lower(graph, streams, widths, store, options);
  for (const auto& [name, stored] : store.all()) to.weights.emplace(name, stored.type);
  for (const int n : options.wanted) {
    const auto value = lowered.values.find(n);
    if (value == lowered.values.end()) continue;
    to.results.emplace(graph.nodes[static_cast<size_t>(n)].name,
                       lowered.program.type(lowered.program.output(value->second)->value));
  }
}

// Returns the tensors of all cycles. Of many conditions the first six take all combinations, the others do not hold.
Tensors tensors_of(BoundGraph& bound, const Graph& graph, const Widths& widths, const RunSettings& run) {
  constexpr size_t kCombined = 6;
  Tensors all;
  for (size_t cycle = 0; cycle < graph.cycles.size(); ++cycle) {
    LoweringOptions options;
    options.cycle = static_cast<int>(cycle);
    options.mode = graph.trains(options.cycle) ? Mode::evaluate : Mode::infer;
    options.batch = bound.settings(options.cycle, run).batch;
    options.wanted = bound.results(options.cycle);
    std::vector<int> conditions;
    for (size_t i = 0; i < graph.conditionals.size(); ++i)
      if (graph.conditionals[i].cycle == options.cycle) conditions.push_back(static_cast<int>(i));
    for (size_t choice = 0; choice < size_t{1} << std::min(conditions.size(), kCombined); ++choice) {
      options.branches.clear();
      for (size_t i = 0; i < conditions.size(); ++i)
        options.branches.insert(2 * conditions[i] + (i < kCombined && (choice >> i & 1) ? 0 : 1));
      add_tensors(graph, bound.types(), widths, options, all);
    }
  }
  return all;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::Shape, "the change needs other weights: " + what, {},
              {"a running flow keeps its weights: change the file and start another run, or change arguments that "
               "determine no shapes"});
}

}  // namespace

void expect_same_weights(BoundGraph& graph, const Graph& next, const RunSettings& run) {
  const Tensors before = tensors_of(graph, graph.graph(), graph.widths(), run),
                after = tensors_of(graph, next, graph.widths_of(next), run);
  for (const auto& [name, type] : before.weights) {
    const auto at = after.weights.find(name);
    if (at == after.weights.end()) refuse(fmt::format("'{}' would not be used", name));
    if (at->second != type) refuse(fmt::format("'{}' would be {} instead of {}", name, at->second.str(), type.str()));
  }
  for (const auto& [name, type] : after.weights)
    if (!before.weights.count(name)) refuse(fmt::format("'{}' would be new", name));
  for (const auto& [name, type] : before.results) {
    const auto at = after.results.find(name);
    if (at == after.results.end() || at->second == type) continue;
    throw Error(ErrorKind::Shape, fmt::format("'{}' would be {} instead of {}", name, at->second.str(), type.str()), {},
                {"a running flow keeps the shapes of its results: change the file and start another run"});
  }
}

}  // namespace harmonics::engine
