// harmonics explain --memory: lists the values that a training step keeps for its backward pass.
#include <algorithm>
#include <map>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/explanation.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/passes/pass.hpp"
#include "engine/passes/recomputation.hpp"
#include "engine/training/lower.hpp"
#include "engine/training/step_memory.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

constexpr int64_t kMostTokens = 2048;  // assumed maximum length of a sequence

std::string in_millions(uint64_t bytes) { return fmt::format("{:.1f}", static_cast<double>(bytes) / 1e6); }

std::string inputs_text(const KeptValue& value) {
  std::string text;
  for (const std::string& input : value.inputs) text += (text.empty() ? "" : ", ") + input;
  return text;
}

// Groups the values by layer, in the order of the program; values without a layer are last, under "".
std::vector<std::pair<std::string, std::vector<const KeptValue*>>> by_layer(const std::vector<KeptValue>& kept) {
  std::vector<std::pair<std::string, std::vector<const KeptValue*>>> layers;
  std::vector<const KeptValue*> others;
  for (const KeptValue& value : kept) {
    if (value.layer.empty()) {
      others.push_back(&value);
      continue;
    }
    auto at = std::find_if(layers.begin(), layers.end(), [&](const auto& layer) { return layer.first == value.layer; });
    if (at == layers.end()) at = layers.insert(layers.end(), {value.layer, {}});
    at->second.push_back(&value);
  }
  if (!others.empty()) layers.emplace_back("", std::move(others));
  return layers;
}

bool alike(const std::vector<const KeptValue*>& a, const std::vector<const KeptValue*>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const KeptValue* x, const KeptValue* y) {
    return x->name == y->name && x->operation == y->operation && x->type == y->type;
  });
}

void say_values(const std::vector<KeptValue>& kept, const Explanation& e) {
  e.say(fmt::format("  {:<24} {:<20} {:>9} {:>9}  {:<14} {}\n", "name", "shape", "MB", "in 16 bit", "made by",
                    "read as"));
  const auto layers = by_layer(kept);
  for (size_t first = 0; first < layers.size();) {
    size_t last = first;
    while (last + 1 < layers.size() && !layers[first].first.empty() &&
           alike(layers[first].second, layers[last + 1].second))
      ++last;
    const std::string& name = layers[first].first;
    e.say(name.empty()    ? "  outside of blocks\n"
          : first == last ? "  " + name + "\n"
                          : fmt::format("  {} to {}, each\n", name, layers[last].first));
    for (const KeptValue* value : layers[first].second)
      e.say(fmt::format("  {:<24} {:<20} {:>9} {:>9}  {:<14} {}\n", value->name.empty() ? "(no name)" : value->name,
                        value->type.str(), in_millions(value->bytes()), in_millions(value->bytes_in_16_bits()),
                        value->operation, inputs_text(*value)));
    first = last + 1;
  }
}

json::object memory_object(const StepMemory& step) {
  return {{"recompute", step.recompute},
          {"kept_bytes", step.kept_bytes()},
          {"bytes_per_layer", step.bytes_per_layer()},
          {"bytes_per_layer_in_16_bits", step.bytes_per_layer_in_16_bits()},
          {"peak_bytes", step.plan.arena_bytes},
          {"state_bytes", step.plan.state_bytes}};
}

json::object value_object(const KeptValue& value) {
  return {{"layer", value.layer},
          {"name", value.name},
          {"operation", value.operation},
          {"scope", value.scope},
          {"inputs", json::value_from(value.inputs)},
          {"dtype", std::string(dtype_name(value.type.dtype))},
          {"shape", json::value_from(value.type.shape.vector())},
          {"bytes", value.bytes()},
          {"bytes_in_16_bits", value.bytes_in_16_bits()}};
}

// Returns the length of a sequence: --tokens, or else the context of the model, up to kMostTokens.
int64_t tokens_to_plan(const Model& model, const Options& options) {
  if (options.tokens > 1 || options.given.contains("tokens")) return options.tokens;
  return std::clamp<int64_t>(model.context, 1, kMostTokens);
}

// Returns a model whose parameters take no memory. Sets sizes.tokens.
Model model_to_plan(const Options& options, EntrySizes& sizes) {
  const std::string& file = options.files.front();
  if (is_ndsl(file)) {
    NdslOptions of_file = ndsl_options(options);
    of_file.trainable = of_file.plan_only = true;
    const Model model = open_ndsl(file, of_file).model;
    sizes.tokens = tokens_to_plan(model, options);
    return options.weights.empty() ? model : planned_model(model, sizes);
  }
  expect_no_flow_flags(options);
  const OpenedModel opened = open_model(file, options);
  if (!opened.model.find("loss"))
    throw Error(ErrorKind::Usage, fmt::format("'{}' has no entry 'loss', by which it could be trained", file));
  sizes.tokens = tokens_to_plan(opened.model, options);
  return planned_model(opened.model, sizes);
}

}  // namespace

void show_step_memory(const Program& step, const ShownProgram& shown, const Options& options, Explanation& e) {
  const bool trains = std::any_of(step.nodes.begin(), step.nodes.end(),
                                  [&](const Node& node) { return is_in(Phase::gradient, step, node); });
  if (!trains) return;
  std::vector<std::string> presets{"none"};
  for (const std::string& preset : recomputation_presets())
    if (preset != "lora") presets.push_back(preset);
  const std::string& own = options.run.recomputation;
  if (!own.empty() && std::find(presets.begin(), presets.end(), own) == presets.end()) presets.push_back(own);
  const std::vector<StepMemory> all = step_memory(step, shown.binding, shown.compile, presets);
  const auto chosen = std::find_if(all.begin(), all.end(), [&](const StepMemory& s) { return s.recompute == own; });
  const StepMemory& listed = chosen == all.end() ? all.front() : *chosen;
  e.say(fmt::format("kept from the forward pass to the backward pass{}{}\n", shown.of,
                    listed.recompute == "none" ? "" : ", with --recompute " + listed.recompute));
  say_values(listed.kept, e);
  e.say(fmt::format("\n  {:<24} {:>12} {:>12} {:>12} {:>12}\n", "--recompute, MB", "a layer", "in 16 bits", "in all",
                    "peak"));
  json::array totals, values;
  for (const StepMemory& one : all) {
    e.say(fmt::format("  {:<24} {:>12} {:>12} {:>12} {:>12}\n", one.recompute, in_millions(one.bytes_per_layer()),
                      in_millions(one.bytes_per_layer_in_16_bits()), in_millions(one.kept_bytes()),
                      in_millions(one.plan.arena_bytes)));
    totals.push_back(memory_object(one));
  }
  e.say(fmt::format("  weights, gradients that are kept and moments: {} MB beside the peak\n\n",
                    in_millions(listed.plan.state_bytes)));
  for (const KeptValue& value : listed.kept) values.push_back(value_object(value));
  e.add("kept", json::object{{"values", std::move(values)}, {"recompute", std::move(totals)}});
}

bool explain_model_memory(const Options& options) {
  if (!options.memory || options.files.empty()) return false;
  const std::string& file = options.files.front();
  if (!is_ndsl(file) && !is_model(file, Registry::global())) return false;
  refuse_beside(options, {"show", "entry", "after", "select", "placement"}, "--memory of a model");
  EntrySizes sizes;
  sizes.batch = options.run.batch.value_or(1);
  sizes.training = true;
  const Model model = model_to_plan(options, sizes);
  StepOptions step;
  step.optimizer = parse_optimizer(options.run.optimizer.value_or("adamw"), Registry::global());
  step.clip = options.run.clip.value_or(0);
  step.clip_value = options.run.clip_value.value_or(0);
  step.batch = sizes.batch;
  step.tokens = sizes.tokens;
  const Lowered lowered = lower(model, step);
  CompileOptions compile;
  static_cast<DeviceSettings&>(compile) = options.run;
  compile.limits = options.limits;
  Explanation e(options);
  e.object()["version"] = 1;
  e.object()["graph"] = model.name;
  e.say(fmt::format("{}: a training step on {} of {}\n", model.name,
                    sizes.batch == 1 ? "one sequence" : fmt::format("{} sequences", sizes.batch),
                    sizes.tokens == 1 ? "one token" : thousands(sizes.tokens) + " tokens"));
  const auto executor = make_sequential_executor();
  show_step_memory(lowered.program, {*model.parameters, *executor, compile, ""}, options, e);
  if (options.json) print_json(e.object());
  return true;
}

}  // namespace harmonics::engine::cli
