#include "engine/flow/flow_model.hpp"

#include <algorithm>
#include <utility>

namespace harmonics::engine {

Model flow_model(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                 std::shared_ptr<ParameterStore> store, FlowPart part) {
  Model model;
  model.name = graph.name;
  model.parameters = std::move(store);
  model.limits = part.limits;
  // Taps in branches that are not taken count too, because the step reads their targets.
  const bool tapped = std::any_of(graph.taps.begin(), graph.taps.end(),
                                  [&](const GraphTap& tap) { return tap.cycle < 0 || tap.cycle == part.cycle; });
  const auto entry = [&](const char* name, bool with_loss) {
    model.entries.push_back({name, [&graph, &streams, &widths, weights = model.parameters, part, with_loss, tapped](
                                       Tracer& tracer, const EntrySizes& sizes, EntryResults& results) {
                               const bool trains = sizes.training && with_loss == tapped;
                               const Mode mode = trains ? Mode::train : with_loss ? Mode::evaluate : Mode::infer;
                               trace_entry(tracer, graph, streams, widths, *weights, part, mode, sizes, results);
                             }});
  };
  entry("forward", false);
  if (tapped) entry("loss", true);
  return model;
}

Lowered lower(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths, ParameterStore& store,
              const LoweringOptions& options) {
  const std::shared_ptr<ParameterStore> borrowed(std::shared_ptr<ParameterStore>(), &store);
  return lower(flow_model(graph, streams, widths, borrowed, options), options);
}

}  // namespace harmonics::engine
