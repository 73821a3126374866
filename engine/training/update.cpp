#include "engine/training/update.hpp"

#include <map>
#include <utility>

#include <harmonics/ops.hpp>

#include "engine/program/step_input.hpp"
#include "engine/training/plugin_optimizer.hpp"

namespace harmonics::engine {

namespace {

HTensor moment(Tracer& tracer, ParameterStore& store, const std::string& name, const TensorType& type) {
  store.declare(name, type, Role::moment, hx_init{HX_INIT_CONSTANT, 0, 0}, 0);
  return tracer.state(name, type);
}

const std::string kAccumulator = "optimizer.gradient.";

std::string of_part(const std::string& name, size_t part) {
  return part == 0 ? name : name + ":" + std::to_string(part);
}

std::string accumulator(const std::string& parameter, size_t part) { return of_part(kAccumulator + parameter, part); }

HTensor times(const HTensor& gradient, const HTensor& factor) {
  return factor ? gradient * cast(factor, gradient.dtype()) : gradient;
}

HTensor clipped(const HTensor& gradient, const UpdateSettings& settings) {
  return settings.clip_value > 0 ? minimum(maximum(gradient, -settings.clip_value), settings.clip_value) : gradient;
}

// Returns the factor that clips all gradients by global norm, like torch.nn.utils.clip_grad_norm_, times `scale`.
// Returns an empty tensor if no factor is needed.
HTensor clip_factor(Tracer& tracer, const UpdateSettings& settings, const std::vector<HTensor>& gradients,
                    const HTensor& scale) {
  if (!(settings.clip > 0)) return scale;
  HTensor norm = call1("global_norm", gradients);
  if (scale) norm = norm * cast(scale, norm.dtype());
  if (settings.shows_norm) tracer.output(kGradientNorm, cast(norm, DType::F32));
  const HTensor shorter = minimum(settings.clip / (norm + 1e-6), 1.0);
  return scale ? cast(scale, norm.dtype()) * shorter : shorter;
}

void step_by_plugin(Tracer& tracer, ParameterStore& store, const Optimizer& optimizer, const SteppedParameter& p,
                    const HTensor& gradient) {
  std::vector<std::string> names;
  std::vector<HTensor> moments;
  for (const UpdateRule::Moment& m : plugin_moments(optimizer, p)) {
    names.push_back("optimizer." + m.name + "." + p.name);
    moments.push_back(moment(tracer, store, names.back(), m.type));
  }
  const std::vector<HTensor> next =
      plugin_step(optimizer, p, tracer.parameter(p.name, p.type), gradient, moments,
                  step_input(tracer, StepInput::rate), step_input(tracer, StepInput::step));
  tracer.update(p.name, next.at(0));
  for (size_t i = 0; i < names.size(); ++i) tracer.update(names[i], next.at(i + 1));
}

void step_parameter(Tracer& tracer, ParameterStore& store, const Optimizer& optimizer, const TrainedParameter& p,
                    const HTensor& gradient) {
  const TensorType type = store.find(p.name)->type;
  if (optimizer.settings.row->item) return step_by_plugin(tracer, store, optimizer, {p.name, type, p.hidden}, gradient);
  const UpdateRule rule = update_rule(optimizer, type, p.hidden);
  std::vector<HTensor> inputs{tracer.parameter(p.name, type), gradient};
  std::vector<std::string> moments;
  for (const UpdateRule::Moment& m : rule.moments) {
    moments.push_back("optimizer." + m.name + "." + p.name);
    inputs.push_back(moment(tracer, store, moments.back(), m.type));
  }
  inputs.push_back(step_input(tracer, StepInput::rate));
  if (rule.counts_steps) inputs.push_back(step_input(tracer, StepInput::step));
  const std::vector<HTensor> next = apply(rule.functional, rule.attributes, inputs);
  tracer.update(p.name, next.at(0));
  for (size_t i = 0; i < moments.size(); ++i) tracer.update(moments[i], next.at(i + 1));
}

}  // namespace

bool is_accumulator(const std::string& name) { return name.rfind(kAccumulator, 0) == 0; }

void trace_updates(Tracer& tracer, ParameterStore& store, const UpdateSettings& settings,
                   const std::vector<TrainedParameter>& parameters, std::vector<HTensor> gradients,
                   const HTensor& scale) {
  if (parameters.empty()) return;
  const bool clip_first = settings.clip > 0 && settings.clip_value > 0;
  HTensor factor = scale;
  {
    const TraceScope scope({"clip", Phase::optimizer});
    if (clip_first) {
      for (HTensor& g : gradients) g = clipped(times(g, factor), settings);
      factor = {};
    }
    factor = clip_factor(tracer, settings, gradients, factor);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const TraceScope scope({parameters[i].name, Phase::optimizer});
    const HTensor g = times(std::exchange(gradients[i], {}), factor);
    step_parameter(tracer, store, settings.optimizer, parameters[i], clip_first ? g : clipped(g, settings));
  }
}

void trace_accumulation(Tracer& tracer, ParameterStore& store, const std::vector<TrainedParameter>& parameters,
                        const std::vector<std::vector<HTensor>>& gradients, double weight) {
  if (parameters.empty()) return;
  const HTensor keep = step_input(tracer, StepInput::keep);
  for (size_t part = 0; part < gradients.size(); ++part)
    for (size_t i = 0; i < parameters.size(); ++i) {
      const TraceScope scope({parameters[i].name, Phase::optimizer});
      const HTensor& gradient = gradients[part][i];
      const std::string name = accumulator(parameters[i].name, part);
      const HTensor sum = moment(tracer, store, name, type_of(gradient));
      const HTensor share = weight == 1 ? gradient : gradient * weight;
      // select() instead of a multiplication by 0, which would propagate infinities and NaN.
      tracer.update(name, select(keep, sum, zeros_like(sum)) + share);
    }
}

namespace {

// Removes the gradient outputs from a differentiated program and returns them by parameter.
class TakenGradients {
 public:
  explicit TakenGradients(Program& program) {
    for (const NamedValue& output : program.outputs)
      if (is_gradient_output(output.name)) at_[output.name] = output.value;
    std::erase_if(program.outputs, [](const NamedValue& output) { return is_gradient_output(output.name); });
  }
  std::vector<HTensor> of(Tracer& tracer, const std::vector<TrainedParameter>& parameters, size_t part) const {
    std::vector<HTensor> gradients;
    for (const TrainedParameter& p : parameters) {
      const auto at = at_.find(gradient_output(p.name, part));
      gradients.push_back(at == at_.end() ? zeros_like(tracer.parameter(p.name)) : tracer.handle(at->second));
    }
    return gradients;
  }

 private:
  std::map<std::string, ValueId> at_;
};

}  // namespace

Program update(Program differentiated, ParameterStore& store, const UpdateSettings& settings,
               const std::vector<TrainedParameter>& parameters, Budget* steps) {
  const TakenGradients gradients(differentiated);
  Tracer tracer(std::move(differentiated));
  tracer.set_budget(steps);
  const TraceScope scope({"", Phase::optimizer});
  trace_updates(tracer, store, settings, parameters, gradients.of(tracer, parameters, 0));
  return tracer.take();
}

Program accumulate(Program differentiated, ParameterStore& store, const std::vector<TrainedParameter>& parameters,
                   size_t parts, double weight, Budget* steps) {
  const TakenGradients gradients(differentiated);
  Tracer tracer(std::move(differentiated));
  tracer.set_budget(steps);
  const TraceScope scope({"", Phase::optimizer});
  std::vector<std::vector<HTensor>> by_part;
  for (size_t part = 0; part < parts; ++part) by_part.push_back(gradients.of(tracer, parameters, part));
  trace_accumulation(tracer, store, parameters, by_part, weight);
  return tracer.take();
}

Program accumulated_update(const std::string& name, ParameterStore& store, const UpdateSettings& settings,
                           const std::vector<TrainedParameter>& parameters, size_t parts) {
  Tracer tracer(name);
  const auto gathered = [&](const TrainedParameter& p, size_t part) {
    return moment(tracer, store, accumulator(p.name, part), store.find(p.name)->type);
  };
  const auto scale = [&](size_t part) { return step_input(tracer, StepInput::scale, part); };
  std::vector<HTensor> gradients;
  for (const TrainedParameter& p : parameters) {
    gradients.push_back(gathered(p, 0));
    if (parts > 1) gradients.back() = times(gradients.back(), scale(0));
    for (size_t part = 1; part < parts; ++part)
      gradients.back() = gradients.back() + times(gathered(p, part), scale(part));
  }
  const TraceScope scope({"", Phase::optimizer});
  trace_updates(tracer, store, settings, parameters, std::move(gradients), parts > 1 ? HTensor() : scale(0));
  return tracer.take();
}

}  // namespace harmonics::engine
