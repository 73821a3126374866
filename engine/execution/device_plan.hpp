// DevicePlan: an Executable on a device with its own memory. Kernels are queued, inputs uploaded, results downloaded.
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

// A step computed on the host.
struct HostedStep {
  void (*run)(const void* context, void* const* buffers, uint32_t phase, uint32_t part) = nullptr;
  const void* context = nullptr;
  uint32_t phases = 0;
  uint32_t parts[HX_MAX_PHASES] = {};
  std::vector<Transfer> in, out;
  std::vector<void*> buffers;
};

struct DeviceStep {
  const hx_kernel* kernel = nullptr;  // null: a hosted step or a copy
  const HostedStep* hosted = nullptr;
  std::vector<hx_place> places;  // kernel operands, or source and destination of a copy
  uint64_t bytes = 0;            // of a copy
  bool changes = false;          // writes a parameter or state
};

// An input's address on the device. Adjacent small inputs are uploaded together from `packed`.
struct DeviceInput {
  hx_place place;
  uint64_t bytes;
  std::byte* packed = nullptr;
  uint64_t packed_bytes = 0;  // set on the first of a group: bytes of the whole group
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
  std::shared_ptr<HostMemory> host;  // packed inputs, results, scratch of hosted steps
  std::vector<std::unique_ptr<HostedStep>> hosted;
  std::unique_ptr<DeviceBuffer> arena, input_buffer, constant_buffer;
};

// Like assemble(). `host`: the device that runs nodes `kernels` has no kernel for; null: the reference.
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
  // Recorded on the second run, when everything created on first use exists.
  struct Recorded {
    int runs = 0;
    bool possible = true;
    hx_capture* capture = nullptr;
  };
  // The recording for one binding of parameters and states; it contains their addresses.
  struct Binding {
    std::vector<std::shared_ptr<DeviceTensor>> tensors;
    Recorded forward, rest, whole;
    DeviceEvent there;  // results of the first half are available, while the second half runs; part of `whole`
  };

  void release(Binding& binding);
  void begin(const void* const* inputs);
  void send_inputs(const void* const* inputs);
  uint64_t input_end(size_t i) const;
  bool lies_alike(const void* const* inputs, size_t first, size_t i) const;
  // `number`: checked by every step that changes a parameter or state; null: no check.
  void run_steps(size_t step, size_t end, const hx_place* number = nullptr);
  hx_status enqueue_native(const DeviceStep& step);
  void run_step(const DeviceStep& step, const hx_place* number = nullptr);
  // `run` queues these steps
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
  std::vector<std::shared_ptr<DeviceTensor>> homes_;  // by state, as compiled
  std::vector<std::unique_ptr<Binding>> bindings_;    // the last ones
  Binding* bound_ = nullptr;
  const float* asked_ = nullptr;     // argument of the last can_look_at()
  std::optional<hx_place> looked_;   // its address on the device; empty: it cannot be checked there
  std::optional<bool> keeps_times_;  // empty: not tested yet
  uint64_t nothing_ = 0;             // as of PlanTimes
};

}  // namespace harmonics::engine
