#include "engine/bound/not_finite.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/core.h>

#include "engine/execution/selection.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/expand_calls.hpp"
#include "engine/program/host_function.hpp"
#include "engine/tensor/finite.hpp"

namespace harmonics::engine {

namespace {

struct FirstPlace {
  std::string text;
  bool in_data = false;
  std::string producer = {};
};

// Describes the place of a sample in a producer's data, with its record number if it can be found.
FirstPlace place_in_data(const NotFinite& step, int producer, const void* samples, int64_t sample, int64_t bytes) {
  const std::string& name = step.graph.graph().nodes[static_cast<size_t>(producer)].name;
  const auto record = step.graph.streams().record_of(producer, step.graph.registry(),
                                                     static_cast<const std::byte*>(samples) + sample * bytes,
                                                     static_cast<size_t>(bytes));
  const std::string where = record ? fmt::format("record {} of {} (counted from 0)", record->number, record->address)
                                   : fmt::format("sample {} of the batch", sample);
  return {fmt::format("producer '{}', {}", name, where), true, name};
}

FirstPlace first_place(const NotFinite& step, const CompiledStep& look) {
  const Graph& g = step.graph.graph();
  for (size_t i = 0; i < step.producers.size(); ++i) {
    const StreamType& type = step.graph.types().at(step.producers[i]);
    const int64_t one = type.sample.count();
    if (const int64_t bad = first_not_finite(type.dtype, step.streams[i], one * step.count); bad >= 0)
      return place_in_data(step, step.producers[i], step.streams[i], bad / one,
                           one * static_cast<int64_t>(element_bytes(type.dtype)));
  }
  for (int n : g.order()) {
    const std::string output = "value:" + g.nodes[static_cast<size_t>(n)].name;
    if (!look.lowered().program.output(output)) continue;
    const HTensor& v = look.executable().output(output);
    if (const int64_t bad = first_not_finite(v.dtype(), v.bytes(), v.size()); bad >= 0)
      return {fmt::format("layer '{}', sample {} of the batch", g.nodes[static_cast<size_t>(n)].name,
                          bad / (v.size() / step.count))};
  }
  return {"the loss itself: every layer is finite"};
}

// Adds the inputs and results of opaque plugin functions to the outputs of the program.
std::vector<PluginCall> watch_plugins(BoundGraph& graph, const CompileOptions& options, Program& program) {
  Selection selection(graph.registry(), options, options.training);
  if (!selection.idle())
    expand_calls(program, [&](Node& node) { return choose_in_place(program, node, selection), false; });
  std::vector<PluginCall> steps;
  for (const Node& node : program.nodes) {
    if (node.op != Op::host_call || !is_forward(program, node)) continue;
    PluginCall s{node.host->name(), {}, {}};
    for (const auto& [values, names] : {std::pair(&node.inputs, &s.from), std::pair(&node.outputs, &s.to)})
      for (ValueId v : *values) {
        names->push_back(fmt::format("plugin:{}:{}", steps.size(), s.from.size() + s.to.size()));
        program.outputs.push_back({names->back(), v});
      }
    steps.push_back(std::move(s));
  }
  return steps;
}

// Returns the first plugin that turned finite inputs into a non-finite result; "" if there is none.
std::string first_plugin(const std::vector<PluginCall>& steps, const CompiledStep& look) {
  const auto bad = [&](const std::string& name) {
    const HTensor& v = look.executable().output(name);
    return first_not_finite(v.dtype(), v.bytes(), v.size()) >= 0;
  };
  for (const PluginCall& s : steps)
    if (std::none_of(s.from.begin(), s.from.end(), bad) && std::any_of(s.to.begin(), s.to.end(), bad)) return s.name;
  return "";
}

// Lists all plugin functions in the step, for a message.
std::string plugins_of(const Lowered& lowered, const LoweringOptions& options) {
  std::set<std::string> names;
  for (const PluginCall& c : lowered.plugins) names.insert(c.name);
  const NamedSettings& optimizer = options.optimizer.settings;
  if (optimizer.row && optimizer.row->item) names.insert(spoken_name(*optimizer.row->item));
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

}  // namespace

Error not_finite(const NotFinite& step, const LoweringOptions& observing, Executor& executor,
                 const DeviceSettings& device) {
  const CompileOptions compile_options = step.graph.compile_options(device, observing.mode == Mode::train);
  Lowered lowered = step.graph.lower(observing);
  const std::vector<PluginCall> own_code = watch_plugins(step.graph, compile_options, lowered.program);
  CompiledStep look(std::move(lowered), step.graph.store(), executor, compile_options);
  look.set(step.streams.data(), 0, step.steps + 1, observing.seed);
  look.run_forward();
  std::vector<std::string> notes;
  const std::string by_code = first_plugin(own_code, look),
                    traced = step.first_non_finite.empty() ? first_plugin(look.lowered().plugins, look) : "";
  if (!by_code.empty() || !traced.empty())
    notes.push_back((by_code.empty() ? traced : by_code) + " made it from finite numbers: remove or correct it");
  else if (const std::string all = plugins_of(look.lowered(), observing);
           !step.first_non_finite.empty() && !all.empty())
    notes.push_back("the cause may be a gradient or an update of a plugin; this step uses " + all +
                    ": remove them one by one");
  const FirstPlace first = first_place(step, look);
  if (first.in_data)
    notes = {fmt::format("correct it, or leave such samples out: where=finite in the address of '{}'", first.producer)};
  else if (by_code.empty() && !step.given)
    notes.push_back(
        "lower the learning rate (run: --lr 1e-4, train: --set learning_rate=1e-4) or look at the data of that step");
  const std::string loss = std::isnan(step.loss) ? "nan" : fmt::format("{}", step.loss);  // never "-nan"
  return Error(ErrorKind::Diverged,
               fmt::format("the loss is {} at step {} (epoch {}); first not finite: {}", loss, step.steps + 1,
                           step.epoch, first.text),
               {}, notes);
}

}  // namespace harmonics::engine
