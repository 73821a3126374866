// CompiledPlan: an Executable in host memory. Runs an array of steps in order; their operands are in an array of
// pointers.
#pragma once

#include "engine/execution/plan.hpp"
#include "engine/execution/waves.hpp"

namespace harmonics::engine {

struct KernelStep {
  void (*run)(const void* context, void* const* buffers, uint32_t phase, uint32_t part);
  const void* context;
  void* const* buffers;
  uint32_t phases;
  uint32_t parts[HX_MAX_PHASES];
  bool turns = false;  // see turned_part()
};

// Where each run stores the pointer of an input.
struct InputSlot {
  uint32_t slot, input;
  uint64_t offset;
};

// A pointer into a parameter's or state's memory.
struct StateSlot {
  uint32_t slot, state;
  uint64_t offset;
};

// A result in the memory of a state.
struct StateOutput {
  std::string name;
  TensorType type;
  uint32_t state;
  uint64_t offset;
};

// A packed parameter that a step reads, from TensorBinding::packed.
struct PackedOperand {
  uint32_t step;
  std::shared_ptr<const Storage> form;
};

// All parts of a plan, filled by assemble().
struct PlanParts : PlanCommon {
  std::vector<KernelStep> steps;
  std::vector<StepAccess> access;  // by step
  std::vector<void*> pointers;     // operands of all steps, contiguous; not resized once steps point into it
  std::vector<InputSlot> inputs;
  std::vector<StateSlot> state_slots;
  std::vector<StateOutput> state_outputs;
  std::vector<void*> homes;  // addresses of states at compile time
  std::shared_ptr<Storage> arena;
  std::vector<std::shared_ptr<const void>> users;  // from TensorBinding::user_of
  std::vector<PackedOperand> packed;
  std::vector<size_t> packed_states;  // indices of those parameters
};

// Fewer bytes of weights that do not change stay in the caches between runs: they are not fetched ahead, and steps keep
// the program's order.
inline constexpr uint64_t kBeyondCaches = 32u << 20;

// Selects a kernel for every node, orders the steps for one thread or several, plans the memory and lays out the steps.
// Throws if a call has no kernel. For `plan_only` see CompileOptions.
PlanParts assemble(Program program, TensorBinding* binding, KernelSource& kernels, const CompileBody& compile_body,
                   int threads, bool plan_only = false);

// Context of a parallel phase.
struct PhaseJobs {
  const KernelStep* steps;
  const WaveJob* jobs;
};

class CompiledPlan final : public PlanOf<PlanParts> {
 public:
  CompiledPlan(PlanParts parts, Executor& executor);

  void run(const void* const* inputs) override;
  void run_forward(const void* const* inputs) override;
  void run_rest(const void* const* inputs) override;
  void run_timed(const void* const* inputs, PlanTimes& times) override;
  void run_empty(const void* const* inputs) override;
  using Executable::bind;
  void bind(std::span<void* const> addresses) override;

 private:
  void point_at(const void* const* inputs);
  void run_steps(const KernelStep* step, const KernelStep* end);
  void run_turned_steps(const KernelStep* step, const KernelStep* end);
  // Run the forward pass, and the remaining steps: in order on one thread, in waves on several.
  void run_first(const KernelStep* steps);
  void run_second(const KernelStep* steps);
  void run_waves(const KernelStep* steps, size_t phase, size_t end);
  // Returns what the threads read first in a phase of the waves: packed parameters.
  std::vector<ReadAhead> first_reads(const WavePhase& phase) const;

  std::vector<void*> bound_;  // current addresses of states
  Executor& executor_;
  Waves waves_;                               // empty on one thread
  std::vector<WaveJob> turned_jobs_;          // of waves_, with turned parts
  std::vector<PhaseJobs> jobs_[2];            // by phase of the waves; [1]: turned
  std::vector<std::vector<ReadAhead>> next_;  // by phase of the waves, one for each thread or none
  std::vector<KernelStep> empty_;             // created by the first run_empty()
  bool turns_ = false, turned_ = false;       // whether a step turns; whether the parts are turned in this run
};

}  // namespace harmonics::engine
