// DevicePlan: an Executable on a device with its own memory. Queues kernels, uploads inputs and downloads results.
// Nodes without a device kernel run on the host, with copies.
#pragma once

#include <optional>

#include "engine/execution/plan.hpp"
#include "engine/execution/staging.hpp"

namespace harmonics::engine {

struct Transfer {
  hx_place place;
  void* host;
  uint64_t bytes;
};

// A step that runs on the host.
struct HostedStep {
  void (*run)(const void* context, void* const* buffers, uint32_t phase, uint32_t part) = nullptr;
  const void* context = nullptr;
  uint32_t phases = 0;
  uint32_t parts[HX_MAX_PHASES] = {};
  std::vector<Transfer> in, out;
  std::vector<void*> buffers;
};

struct DeviceStep {
  const hx_kernel* kernel = nullptr;  // null for a hosted step or a copy
  const HostedStep* hosted = nullptr;
  std::vector<hx_place> places;  // operands of the kernel, or source and destination of a copy
  uint64_t bytes = 0;            // size of a copy
  bool changes = false;          // writes a parameter or state
};

// The device address of an input. Adjacent small inputs are uploaded together from `packed`.
struct DeviceInput {
  hx_place place;
  uint64_t bytes;
  std::byte* packed = nullptr;
  uint64_t packed_bytes = 0;  // for the first input of a group: bytes of the whole group
};

// An operand of a step that is part of a parameter or state.
struct StatePlace {
  hx_place* at;
  uint32_t state;
  uint64_t offset;
};

// All parts of a plan, filled by assemble_on_device().
struct DevicePlanParts : PlanCommon {
  DeviceQueuePtr queue;
  std::vector<DeviceStep> steps;
  std::vector<DeviceInput> inputs;
  std::vector<Transfer> results, later;  // downloaded after the forward pass, and after the update phase
  std::vector<std::shared_ptr<DeviceTensor>> used, changed;  // used: by state
  std::vector<bool> updated;                                 // by state
  std::vector<StatePlace> state_places;
  std::shared_ptr<HostMemory> host;  // packed inputs, results, and scratch memory of hosted steps
  std::vector<std::unique_ptr<HostedStep>> hosted;
  std::unique_ptr<DeviceBuffer> arena, input_buffer, constant_buffer;
};

// Selects kernels, plans the memory and lays out the steps, like assemble(). `host` is the device for nodes without a
// kernel in `kernels`; null for the reference.
DevicePlanParts assemble_on_device(Program program, TensorBinding* binding, KernelSource& kernels, KernelSource* host,
                                   const CompileBody& compile_body);

class DevicePlan final : public PlanOf<DevicePlanParts> {
 public:
  DevicePlan(DevicePlanParts parts, Executor& executor);
  ~DevicePlan() override;

  void run(const void* const* inputs) override;
  void run_forward(const void* const* inputs) override;
  void run_rest(const void* const* inputs) override;
  bool run_if_finite(const void* const* inputs, const float* number, float most) override;
  void run_timed(const void* const* inputs, PlanTimes& times) override;
  void run_empty(const void* const* inputs) override;
  void bind(std::span<void* const> addresses) override;
  void bind(std::span<const std::shared_ptr<DeviceTensor>> tensors) override;
  DeviceQueuePtr queue() const override { return p_.queue; }

 private:
  // A recording, made on the second run: by then everything created on first use exists.
  struct Recorded {
    int runs = 0;
    bool possible = true;
    hx_capture* capture = nullptr;
  };
  // The recordings for one binding of parameters and states, whose addresses they contain.
  struct Binding {
    std::vector<std::shared_ptr<DeviceTensor>> tensors;
    Recorded forward, rest, whole;
    DeviceEvent there;  // completes when results of the first half are available; recorded in `whole`
  };

  void release(Binding& binding);
  void begin(const void* const* inputs);
  void send_inputs(const void* const* inputs);
  uint64_t input_end(size_t i) const;
  bool lies_alike(const void* const* inputs, size_t first, size_t i) const;
  // `number` is checked by every step that changes a parameter or state; null for no check.
  void run_steps(size_t step, size_t end, const hx_place* number = nullptr);
  hx_status enqueue_native(const DeviceStep& step);
  void run_step(const DeviceStep& step, const hx_place* number = nullptr);
  // Runs steps [step, end) from their recording, or by `run`, which queues them.
  template <typename Run>
  void run_recorded(Recorded& recorded, size_t step, size_t end, Run run);
  bool can_record(size_t step, size_t end) const;
  void run_half(Recorded& recorded, size_t step, size_t end);
  void run_whole(const hx_place& number);
  bool can_look_at(const float* number);
  void run_hosted(const HostedStep& step);
  bool keeps_times();
  void run_on_its_clock(std::vector<uint64_t>& stamps);
  void run_on_our_clock(std::vector<uint64_t>& stamps);
  void fetch(const std::vector<Transfer>& results);
  void changed();
  void first(const void* const* inputs);
  void second();

  Executor& executor_;
  std::vector<std::shared_ptr<DeviceTensor>> homes_;  // by state, as bound at compile time
  std::vector<std::unique_ptr<Binding>> bindings_;    // the most recent ones
  Binding* bound_ = nullptr;
  const float* asked_ = nullptr;     // argument of the last can_look_at()
  std::optional<hx_place> looked_;   // device address of `asked_`; empty if the device cannot check it
  std::optional<bool> keeps_times_;  // empty until tested
  uint64_t nothing_ = 0;             // see PlanTimes::nothing
};

}  // namespace harmonics::engine
