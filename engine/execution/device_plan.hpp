// The Executable on a device with memory of its own: kernels are put on a queue; inputs go there, results come back. What the
// device has no kernel for runs on the host, with copies.
#pragma once

#include <map>
#include <optional>

#include "engine/execution/executable.hpp"
#include "engine/execution/host_step.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/execution/staging.hpp"

namespace harmonics {

struct Transfer {
  hx_place place;
  void* host;
  uint64_t bytes;
};

// A step that the host computes.
struct HostedStep {
  void (*run)(const void* context, void* const* buffers, uint32_t phase, uint32_t part) = nullptr;
  const void* context = nullptr;
  uint32_t phases = 0;
  uint32_t parts[HX_MAX_PHASES] = {};
  std::vector<Transfer> in, out;
  std::vector<void*> buffers;
};

struct DeviceStep {
  const hx_kernel* kernel = nullptr;  // null: hosted, or a copy
  const HostedStep* hosted = nullptr;
  std::vector<hx_place> places;       // of a copy: from, to
  uint64_t bytes = 0;                 // of a copy
  bool changes = false;               // a parameter or state
};

// An input's place on the device. Small ones that lie side by side go there together, by way of `packed`.
struct DeviceInput {
  hx_place place;
  uint64_t bytes;
  std::byte* packed = nullptr;
  uint64_t packed_bytes = 0;  // of the first of them: of all, from its place on
};

// Everything such a plan owns, filled by assemble_on_device().
struct DevicePlanParts {
  Program program;
  DeviceQueuePtr queue;
  std::vector<DeviceStep> steps;
  size_t rest = 0;                       // first step after the forward pass
  std::vector<DeviceInput> inputs;
  std::vector<Transfer> results, later;  // to be fetched after the forward pass, and after what follows it
  std::vector<std::shared_ptr<DeviceTensor>> used, changed;
  std::vector<std::string> input_names;
  std::vector<TensorType> input_types;
  std::map<std::string, HTensor, std::less<>> outputs;
  std::vector<PlanStep> descriptions;
  std::vector<Selected> selected;
  MemoryReport memory;
  std::shared_ptr<HostMemory> host;      // small inputs, results, and what hosted steps work on
  std::vector<HTensor> constants;
  std::vector<KernelPtr> kernels;
  std::vector<HostKernel> host_kernels;
  std::vector<std::unique_ptr<HostedStep>> hosted;
  std::unique_ptr<DeviceBuffer> arena, input_buffer, constant_buffer;
  bool poison = false;
};

// As assemble(). `host`: of the device whose kernels compute what `kernels` cannot; null: the reference.
DevicePlanParts assemble_on_device(Program program, TensorBinding* binding, KernelSource& kernels, KernelSource* host);

class DevicePlan final : public Executable {
 public:
  DevicePlan(DevicePlanParts parts, Executor& executor) : p_(std::move(parts)), executor_(executor) {}
  ~DevicePlan() override;

  void run(const void* const* inputs) override;
  void run_forward(const void* const* inputs) override;
  void run_rest(const void* const* inputs) override;
  bool run_if_finite(const void* const* inputs, const float* number) override;
  void run_timed(const void* const* inputs, PlanTimes& times) override;
  void run_empty(const void* const* inputs) override;
  const std::vector<std::string>& input_names() const override { return p_.input_names; }
  const TensorType& input_type(size_t i) const override { return p_.input_types.at(i); }
  const HTensor& output(const std::string& name) const override;
  const std::vector<PlanStep>& steps() const override { return p_.descriptions; }
  const std::vector<Selected>& selected() const override { return p_.selected; }
  MemoryReport memory() const override { return p_.memory; }
  const Program& program() const override { return p_.program; }

 private:
  // Steps that are recorded when they run for the second time: what is made at first use is there then.
  struct Recorded {
    int runs = 0;
    bool possible = true;
    hx_capture* capture = nullptr;
  };

  void begin(const void* const* inputs);
  void send_inputs(const void* const* inputs);
  // `number`: what steps that change something look at before; null: they do not.
  void run_steps(size_t step, size_t end, const hx_place* number = nullptr);
  void run_step(const DeviceStep& step, const hx_place* number = nullptr);
  template <typename Run> void run_recorded(Recorded& recorded, size_t step, size_t end, Run run);  // which puts these steps on the queue
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

  DevicePlanParts p_;
  Executor& executor_;
  Recorded forward_, rest_, whole_;
  const float* asked_ = nullptr;     // the number that run_if_finite was last asked to look at,
  std::optional<hx_place> looked_;   // where it lies; none: it cannot be looked at there
  DeviceEvent there_;                // results of the first half, while the second runs
  std::optional<bool> keeps_times_;  // not tried yet
  uint64_t nothing_ = 0;             // as of PlanTimes
};

}  // namespace harmonics
