// CompiledPlan: an Executable in host memory, one array of steps and one of buffer pointers, run in order.
#pragma once

#include <map>

#include "engine/execution/executable.hpp"
#include "engine/execution/host_step.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/execution/memory_plan.hpp"
#include "engine/execution/waves.hpp"

namespace harmonics::engine {

struct KernelStep {
  void (*run)(const void* context, void* const* buffers, uint32_t phase, uint32_t part);
  const void* context;
  void* const* buffers;
  uint32_t phases;
  uint32_t parts[HX_MAX_PHASES];
};

// Where to store an input's pointer before each run.
struct InputSlot {
  uint32_t slot, input;
  uint64_t offset;
};

// A pointer into a parameter's or state's memory.
struct StateSlot {
  uint32_t slot, state;
  uint64_t offset;
};

// A result that lies in a state's memory.
struct StateOutput {
  std::string name;
  TensorType type;
  uint32_t state;
  uint64_t offset;
};

// All parts of a plan, filled by assemble().
struct PlanParts {
  Program program;
  std::vector<KernelStep> steps;
  size_t rest = 0;                 // first step after the forward pass
  std::vector<StepAccess> access;  // by step
  std::vector<void*> pointers;     // buffers of all steps, back to back; not resized once steps point into it
  std::vector<InputSlot> inputs;
  std::vector<StateSlot> state_slots;
  std::vector<StateOutput> state_outputs;
  std::vector<BoundState> states;
  std::vector<void*> homes;  // of the states, as bound by the compiler
  std::vector<std::string> input_names;
  std::vector<TensorType> input_types;
  std::map<std::string, HTensor, std::less<>> outputs;
  std::vector<PlanStep> descriptions;
  std::vector<Selected> selected;
  MemoryReport memory;
  std::shared_ptr<Storage> arena;
  std::vector<std::shared_ptr<const void>> users;      // TensorBinding::user_of
  std::vector<std::shared_ptr<const Storage>> packed;  // forms of parameters, TensorBinding::packed
  std::vector<size_t> packed_states;                   // indices of those parameters
  std::vector<HTensor> constants;
  std::vector<KernelPtr> kernels;
  std::vector<HostKernel> host_kernels;
  bool poison = false;
};

// Returns false for leaves, constants and views, which need no kernel.
bool needs_step(const Program& program, const Node& node);
// Number of results per parameter of an optimizer step, see PlannedStep.
uint32_t update_results(const Node& node);
// Whether the program changes this parameter or state.
bool is_updated(const Program& program, const std::string& name);
uint32_t gradient_operands(const Node& node);  // see PlannedStep
// Index of the first step after the forward pass; steps.size() if there is none.
uint32_t first_of_rest(const Program& program, const std::vector<PlannedStep>& steps);
// Returns the named result; throws ErrorKind::Name with the nearest name.
const HTensor& named_output(const Program& program, const std::map<std::string, HTensor, std::less<>>& outputs,
                            const std::string& name);

// Selects a kernel for every node, plans the memory and lays out the steps. Every call must have a kernel.
PlanParts assemble(Program program, TensorBinding* binding, KernelSource& kernels, const CompileBody& compile_body);

// Context of a parallel phase.
struct PhaseJobs {
  const KernelStep* steps;
  const WaveJob* jobs;
};

class CompiledPlan final : public Executable {
 public:
  CompiledPlan(PlanParts parts, Executor& executor);

  void run(const void* const* inputs) override;
  void run_forward(const void* const* inputs) override;
  void run_rest(const void* const* inputs) override;
  void run_timed(const void* const* inputs, PlanTimes& times) override;
  void run_empty(const void* const* inputs) override;
  const std::vector<std::string>& input_names() const override { return p_.input_names; }
  const std::vector<BoundState>& states() const override { return p_.states; }
  using Executable::bind;
  void bind(std::span<void* const> addresses) override;
  const TensorType& input_type(size_t i) const override { return p_.input_types.at(i); }
  const HTensor& output(const std::string& name) const override;
  const std::vector<PlanStep>& steps() const override { return p_.descriptions; }
  const std::vector<Selected>& selected() const override { return p_.selected; }
  MemoryReport memory() const override { return p_.memory; }
  const Program& program() const override { return p_.program; }

 private:
  void point_at(const void* const* inputs);
  void run_steps(const KernelStep* step, const KernelStep* end);
  // Run the forward pass, then the rest: the steps in order, or on several threads the waves.
  void run_first(const KernelStep* steps);
  void run_second(const KernelStep* steps);
  void run_waves(const KernelStep* steps, size_t phase, size_t end);

  PlanParts p_;
  std::vector<void*> bound_;  // addresses of the states
  Executor& executor_;
  Waves waves_;                    // empty on one thread
  std::vector<PhaseJobs> jobs_;    // by phase of the waves
  std::vector<KernelStep> empty_;  // made by the first run_empty()
};

}  // namespace harmonics::engine
