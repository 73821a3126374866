// Parts shared by plans in host memory and on devices with their own memory, during and after assembly.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "engine/execution/executable.hpp"
#include "engine/execution/host_step.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/execution/memory_plan.hpp"
#include "engine/execution/step_text.hpp"
#include "engine/passes/fold.hpp"
#include "engine/passes/pass.hpp"

namespace harmonics::engine {

struct PlanCommon {
  Program program;
  size_t rest = 0;  // first step after the forward pass
  std::vector<BoundState> states;
  std::vector<std::string> input_names;
  std::vector<TensorType> input_types;
  std::map<std::string, HTensor, std::less<>> outputs;
  std::vector<PlanStep> descriptions;
  std::vector<Selected> selected;
  MemoryReport memory;
  std::vector<HTensor> constants;
  std::vector<KernelPtr> kernels;        // by planned step; null for a host kernel
  std::vector<HostKernel> host_kernels;  // by planned step; kernels of copies follow
  bool poison = false;
};

// Returns false for leaves, constants and views, which need no kernel.
bool needs_step(const Program& program, const Node& node);
// Returns the number of results per parameter of an optimizer step; see PlannedStep.
uint32_t update_results(const Node& node);
uint32_t gradient_operands(const Node& node);  // see PlannedStep
// Returns whether the program changes this parameter or state.
bool is_updated(const Program& program, const std::string& name);
// Returns the index of the first step after the forward pass, or steps.size() if there is none.
uint32_t first_of_rest(const Program& program, const std::vector<PlannedStep>& steps);
// Returns the named result. Throws ErrorKind::Name with the nearest name if it does not exist.
const HTensor& named_output(const Program& program, const std::map<std::string, HTensor, std::less<>>& outputs,
                            const std::string& name);

// An Executable that owns Parts, which derive from PlanCommon.
template <typename Parts>
class PlanOf : public Executable {
 public:
  const std::vector<std::string>& input_names() const final { return p_.input_names; }
  const std::vector<BoundState>& states() const final { return p_.states; }
  const TensorType& input_type(size_t i) const final { return p_.input_types.at(i); }
  const HTensor& output(const std::string& name) const final { return named_output(p_.program, p_.outputs, name); }
  const std::vector<PlanStep>& steps() const final { return p_.descriptions; }
  const std::vector<Selected>& selected() const final { return p_.selected; }
  MemoryReport memory() const final { return p_.memory; }
  const Program& program() const final { return p_.program; }

 protected:
  explicit PlanOf(Parts parts) : p_(std::move(parts)) {}
  // Throws ErrorKind::Internal unless bind() got one address or tensor per state.
  void expect_states(size_t given, const char* what) const {
    if (given != p_.states.size())
      throw Error(ErrorKind::Internal, fmt::format("program '{}' has {} parameters and states, {} {} were given",
                                                   p_.program.name, p_.states.size(), given, what));
  }

  Parts p_;
};

// Builds Parts from a program: chooses the steps, plans the memory, then lays out the operands.
template <typename Parts>
class AssemblerOf {
 protected:
  AssemblerOf(Program program, TensorBinding* binding, KernelSource& kernels, const CompileBody& compile_body)
      : binding_(binding), source_(kernels), compile_body_(compile_body) {
    p_.program = std::move(program);
  }

  const Program& program() const { return p_.program; }
  const Node& node_of(uint32_t step) const { return program().nodes[planned_[step].node]; }

  // Called after the kernels are chosen.
  void plan_steps() {
    rest_ = first_of_rest(program(), planned_);
    plan_ = plan_memory(program(), planned_, rest_);
  }
  // Sets the first step after the forward pass. Copies of old values precede all steps; copies of new values follow
  // them.
  void mark_rest() { p_.rest = rest_ == planned_.size() ? p_.steps.size() : plan_.saves.size() + rest_; }

  // Returns the binding and tells it if the program changes the parameter or state.
  TensorBinding& binding_of(const MemoryPlan::State& s) {
    if (!binding_)
      throw Error(ErrorKind::Internal,
                  fmt::format("program '{}' has the parameter '{}', but no binding was given", program().name, s.name));
    if (is_updated(program(), s.name)) binding_->will_change(s.name);
    p_.states.push_back({s.name, s.type});
    return *binding_;
  }
  void make_constants() {
    constants_.resize(program().nodes.size());
    for (uint32_t i = 0; i < program().nodes.size(); ++i) {
      const Node& node = program().nodes[i];
      if (is_constant(node.op)) constants_[i] = constant_of(node, program().type(node.outputs[0]));
    }
  }
  void name_inputs() {
    for (uint32_t node : plan_.inputs) {
      p_.input_names.push_back(program().nodes[node].callee);
      p_.input_types.push_back(program().type(program().nodes[node].outputs[0]));
    }
  }
  [[noreturn]] void refuse_nowhere() const {
    throw Error(ErrorKind::Internal, fmt::format("program '{}': a value without memory", program().name));
  }

  PlanStep text_of_step(uint32_t s) const {
    PlanStep text = describe_step(program(), node_of(s));
    text.node = planned_[s].node;
    text.kernel = p_.kernels[s] ? p_.kernels[s]->raw().name : p_.host_kernels[s].name;
    return text;
  }
  static PlanStep text_of_copy(const PlannedCopy& copy, const char* what) {
    PlanStep text;
    text.what = what;
    text.kernel = "copy";
    text.bytes = copy.bytes;
    return text;
  }
  void describe(PlanStep text, const Location& l, bool in_place) {
    text.in_place = in_place;
    text.offset = l.offset;
    if (l.place == Place::state) text.target = plan_.states[l.index].name;
    p_.descriptions.push_back(std::move(text));
  }
  void report() {
    p_.memory.arena_bytes = plan_.placement.bytes;
    p_.memory.unshared_bytes = plan_.unshared_bytes;
    p_.memory.workspace_bytes = plan_.workspace_bytes;
    for (const MemoryPlan::State& s : plan_.states) p_.memory.state_bytes += s.type.bytes();
  }

  Parts p_;
  TensorBinding* binding_;
  KernelSource& source_;
  const CompileBody& compile_body_;
  MemoryPlan plan_;
  std::vector<PlannedStep> planned_;
  uint32_t rest_ = 0;
  std::vector<HTensor> constants_;  // by node
};

}  // namespace harmonics::engine
