#include "engine/training/lower.hpp"

#include "engine/model/index_limits.hpp"
#include "engine/passes/observe.hpp"
#include "engine/program/step_input.hpp"
#include "engine/program/tracer.hpp"
#include "engine/training/differentiate.hpp"

namespace harmonics::engine {

namespace {

EntrySizes sizes_of(const StepOptions& options) {
  EntrySizes sizes;
  sizes.batch = options.batch;
  sizes.tokens = options.tokens;
  sizes.training = options.mode == Mode::train;
  sizes.parts = options.accumulate > 0 && options.by_count;
  sizes.metric_inputs = options.metric_inputs;
  sizes.sample_losses = options.sample_losses;
  sizes.operations = options.operations;
  return sizes;
}

// Default objective of an entry that declares none: trains every weight that is not frozen.
void learn_all(Lowered& lowered, const ParameterStore& store) {
  if (!lowered.objectives.empty() || !lowered.program.output("loss")) return;
  std::vector<std::string> all;
  for (std::string& name : differentiable_parameters(lowered.program)) {
    const auto stored = store.all().find(name);
    if (stored == store.all().end() || stored->second.role == Role::weight) all.push_back(std::move(name));
  }
  if (all.empty()) return;
  for (const std::string& name : all) lowered.parameters.push_back({name});
  lowered.objectives.push_back({Objective{"loss", std::move(all)}});
}

// Adds gradients, then either updates or gradient accumulation.
void train(Lowered& lowered, ParameterStore& store, const StepOptions& options, Budget& steps) {
  const size_t parts = lowered.objectives.size();
  Program program = differentiate(std::move(lowered.program), lowered.objectives, {options.chooser, &steps});
  const std::set<std::string> tables = looked_up_parameters(program);
  for (const TrainedParameter& p : lowered.parameters) {
    bool any = false;
    for (size_t part = 0; part < parts; ++part) any = any || program.output(gradient_output(p.name, part));
    if (any) lowered.trained.push_back({p.name, p.hidden && !tables.count(p.name)});
  }
  program = observe(std::move(program), [](const std::string& name) { return !name.starts_with(kObjectiveOutput); });
  lowered.program = options.accumulate > 0
                        ? accumulate(std::move(program), store, lowered.trained, parts, options.accumulate, &steps)
                        : update(std::move(program), store, options, lowered.trained, &steps);
}

}  // namespace

Lowered lower(const Model& model, const StepOptions& options) {
  const Entry* loss = options.mode == Mode::infer ? nullptr : model.find("loss");
  const Entry& entry = loss ? *loss : model.entry("forward");
  const EntrySizes sizes = sizes_of(options);
  Budget steps = model.limits.for_steps();
  Tracer tracer(model.name);
  tracer.set_budget(&steps);
  Lowered lowered;
  entry.body(tracer, sizes, lowered);
  lowered.program = tracer.take();
  if (lowered.inputs.empty())
    for (const Node* leaf : lowered.program.leaves(Op::input))
      if (!step_input_of(leaf->callee)) lowered.inputs.push_back(static_cast<int>(lowered.inputs.size()));
  if (lowered.parts.empty() && lowered.program.output("loss")) lowered.parts.push_back({"loss"});
  if (!options.observe) {
    lowered.program = observe(std::move(lowered.program), [](const std::string& name) {
      return !name.starts_with(kValueOutput) && !name.starts_with(kFunctionOutput);
    });
    lowered.plugins.clear();
  }
  if (options.mode == Mode::train) {
    learn_all(lowered, *model.parameters);
    if (!lowered.objectives.empty()) train(lowered, *model.parameters, options, steps);
  }
  lowered.index_limits = index_limits(lowered.program, lowered.inputs.size());
  if (model.made) model.made(entry, sizes, lowered.program);
  return lowered;
}

}  // namespace harmonics::engine
