#include "engine/training/differentiate.hpp"

#include <map>

#include <harmonics/ops.hpp>

#include "engine/program/functional.hpp"
#include "engine/program/gradient.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

namespace {
constexpr const char* kGradientOf = "gradient:";
}

std::string gradient_output(const std::string& parameter, size_t part) {
  return kGradientOf + std::to_string(part) + ":" + parameter;
}
bool is_gradient_output(const std::string& output) { return output.starts_with(kGradientOf); }

Program differentiate(Program entry, const std::string& loss, const std::vector<std::string>& wrt,
                      const DifferentiateSettings& settings) {
  return differentiate(std::move(entry), {{Objective{loss, wrt}}}, settings);
}

Program differentiate(Program entry, const std::vector<std::vector<Objective>>& parts,
                      const DifferentiateSettings& settings) {
  Tracer tracer(std::move(entry));
  tracer.set_budget(settings.steps);
  const TraceScope scope({"", Phase::gradient});
  for (size_t part = 0; part < parts.size(); ++part) {
    std::map<std::string, HTensor> sums;
    for (const Objective& objective : parts[part]) {
      std::vector<HTensor> wrt;
      for (const std::string& name : objective.wrt) wrt.push_back(tracer.parameter(name));
      const std::vector<HTensor> gradients = gradient(tracer, tracer.result(objective.loss), wrt, settings.chooser);
      for (size_t i = 0; i < wrt.size(); ++i) {
        HTensor& sum = sums[objective.wrt[i]];
        sum = sum ? add(sum, gradients[i]) : gradients[i];
      }
    }
    for (const auto& [name, sum] : sums) tracer.output(gradient_output(name, part), sum);
  }
  return tracer.take();
}

std::vector<std::string> differentiable_parameters(const Program& program) {
  std::vector<std::string> names;
  for (const Node* leaf : program.leaves(Op::parameter))
    if (is_float(program.type(leaf->outputs.at(0)).dtype)) names.push_back(leaf->callee);
  return names;
}

std::set<std::string> looked_up_parameters(const Program& program) {
  std::set<std::string> names;
  for (const Node& n : program.nodes)
    if (const FunctionalPtr f = called_by(n))
      for (size_t i = 0; i < n.inputs.size(); ++i)
        if (const Node& table = program.producer(n.inputs[i]);
            table.op == Op::parameter && is_looked_up(f->signature, i))
          names.insert(table.callee);
  return names;
}

}  // namespace harmonics::engine
