#include "engine/flow/flow_model.hpp"

#include <algorithm>

namespace harmonics::engine {

Model flow_model(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 std::shared_ptr<ParameterStore> store, FlowPart part) {
  Model model;
  model.name = graph.name;
  model.parameters = std::move(store);
  LoweringOptions options;
  options.cycle = part.cycle;
  options.branches = std::move(part.branches);
  options.wanted = std::move(part.wanted);
  options.seed = part.seed;
  options.limits = part.limits;
  const auto entry = [&](const char* name, bool with_loss) {
    model.entries.push_back({name, [&graph, &streams, &widths, weights = model.parameters, options, with_loss](
                                       Tracer& tracer, const EntrySizes& sizes) {
                               LoweringOptions o = options;
                               o.batch = sizes.batch;
                               o.mode = !with_loss ? Mode::infer : sizes.training ? Mode::train : Mode::evaluate;
                               trace_entry(tracer, graph, streams, widths, *weights, o);
                             }});
  };
  entry("forward", false);
  const auto active = [&](const GraphTap& tap) {
    return (tap.cycle < 0 || tap.cycle == part.cycle) &&
           std::all_of(tap.branches.begin(), tap.branches.end(), [&](int b) { return options.branches.count(b) != 0; });
  };
  if (std::any_of(graph.taps.begin(), graph.taps.end(), active)) entry("loss", true);
  return model;
}

}  // namespace harmonics::engine
