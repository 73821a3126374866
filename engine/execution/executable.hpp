// Executable: a program compiled for one device and one set of shapes, as a linear plan with one arena. Running it
// allocates nothing.
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/model_limits.hpp"
#include "engine/passes/precision_recipe.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/program/chooser.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

class DeviceQueue;  // device_memory.hpp
class DeviceTensor;

// Memory that a thread will read.
struct ReadAhead {
  const std::byte* begin = nullptr;
  size_t bytes = 0;
};

// Runs the parts of kernels on threads. Results are independent of the number of threads.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  // Calls body(context, part) for every part in [0, parts), in any order and possibly concurrently. Returns when all
  // calls have returned. The body must not throw. `next`, one for each thread or empty, is what the threads read first
  // in a later job: threads without work may fetch it into their caches until that job. It need not stay valid.
  virtual void run(uint32_t parts, void (*body)(const void* context, uint32_t part), const void* context,
                   std::span<const ReadAhead> next = {}) = 0;
};
// Returns the first part of a thread's range in a job of the team executor.
inline uint32_t first_part(uint32_t parts, uint32_t threads, uint32_t thread) {
  return static_cast<uint32_t>((uint64_t{parts} * thread + threads - 1) / threads);
}
std::unique_ptr<Executor> make_sequential_executor();
// Returns a work-stealing pool of the caller and threads - 1 workers, which runs one job at a time. Each thread starts
// with a fixed range of parts and steals when it is done. Idle workers spin for some tens of microseconds, then sleep.
// For threads <= 1 returns the sequential executor.
std::unique_ptr<Executor> make_team_executor(int threads);

// Memory layout of a two-dimensional tensor: row-major, or transposed (column-major).
enum class Layout : uint8_t { natural, transposed };

// A packed form of a constant operand, defined by a kernel.
struct Packing {
  std::string name;  // identifies layout, instruction set and version; equal names give equal bytes
  uint64_t bytes;
  uint64_t piece;  // bytes per piece; the last piece may be shorter
  // Writes one piece to `to`. Pieces may be written in any order and concurrently.
  std::function<void(const void* elements, uint64_t piece, void* to)> pack;
  // Writes all pieces in order.
  void pack_all(const void* elements, void* to) const {
    for (uint64_t i = 0; i * piece < bytes; ++i) pack(elements, i, static_cast<char*>(to) + i * piece);
  }
};

// A parameter, and the packed form of it that a kernel reads.
struct PackedParameter {
  std::string name;
  Packing packing;
};

// The memory of parameters and states. Plans read and update it in place, so addresses must stay valid while a plan
// exists.
class TensorBinding {
 public:
  virtual ~TensorBinding() = default;
  virtual void* parameter(const std::string& name, const TensorType& type) = 0;  // of a parameter or state
  // Returns how a two-dimensional tensor is stored: as preferred by the first program that asked, for all programs that
  // share the tensor. `type` is the declared type; parameter() is then called with the stored type.
  virtual Layout layout(const std::string& name, const TensorType& type, Layout preferred) {
    (void)name, (void)type, (void)preferred;
    return Layout::natural;
  }
  // Returns the packed forms of parameters in order, and creates those that do not exist. A plan asks for all that it
  // reads at once, so that one file can keep them. Null: the parameter may change.
  virtual std::vector<std::shared_ptr<const Storage>> packed(std::span<const PackedParameter> parameters) {
    return std::vector<std::shared_ptr<const Storage>>(parameters.size());
  }
  // Returns whether no program of the binding's owner changes the parameter.
  virtual bool is_constant(const std::string& name) {
    (void)name;
    return false;
  }
  // Called before parameter() or parameter_on() if the program changes the tensor.
  virtual void will_change(const std::string& name) { (void)name; }
  // Returns an object that the plan keeps as long as it uses the address from parameter().
  virtual std::shared_ptr<const void> user_of(const std::string& name) {
    (void)name;
    return nullptr;
  }
  // Return the queue and the mirrored tensor on a device with its own memory. Programs of one binding share one queue,
  // so that each sees changes by the others. By default every program has a new queue, and tensors are copied before
  // and after every run.
  virtual std::shared_ptr<DeviceQueue> queue_on(const ItemPtr& device);
  virtual std::shared_ptr<DeviceTensor> parameter_on(const std::shared_ptr<DeviceQueue>& queue, const std::string& name,
                                                     const TensorType& type);
};

// Precision of f32 matrix products. Values, weights and totals stay f32.
enum class Precision : uint8_t {
  fp32,
  fp16,       // fp16 operands, short sums in fp16, totals in fp32; ErrorKind::Device if unsupported
  automatic,  // resolved by resolve_precision()
  bf16,       // bf16 operands, fp32 sums
  fp8,        // operands scaled to fp8 (E4M3), fp32 sums; unsuitable products use bf16
  int8,       // for weights of stored types (q8_0 ...): operands are quantised in blocks of 32 eight-bit integers
};
// Parses "fp32", "fp16", "bf16", "fp8", "int8" or "auto". Throws ErrorKind::Usage for other texts.
Precision parse_precision(const std::string& text);
const char* precision_name(Precision precision);

// Device and precision of a program.
struct DeviceSettings {
  std::string device = "cpu";  // a device name, or "reference"
  Precision precision = Precision::fp32;
  std::string precision_reason = {};  // why `auto` chose this precision; empty if requested explicitly
  // Rows, columns and depth that `auto` requires at least of products that round.
  int64_t least_side = 0;
  std::string policy = {};  // policy of a plugin, "NAME(setting=value)"; overrides `precision`
  // Results to recompute in the backward pass of a training step; see parse_recomputation() for the syntax.
  std::string recomputation = {};
};

struct CompileOptions : DeviceSettings {
  ModelLimits limits;
  Registry* registry = nullptr;           // for device lookup; null for the global registry
  std::vector<std::string> recompute;     // scope patterns to recompute, in addition to `recomputation`
  uint32_t recompute_cheapest = 0;        // Recomputation::cheapest, if `recomputation` is "auto"
  bool fuse = true;                       // elementwise fusion and call fusion
  std::vector<std::string> disabled;      // passes switched off by name
  std::optional<PrecisionRecipe> recipe;  // null: recipe_of() these settings
  // Called after each pass with its name and result, for `explain --after`.
  std::function<void(const std::string& pass, const Program&)> observe;
  bool training = false;   // a training step: implementations are chosen for training
  bool plan_only = false;  // the plan is only inspected: its arena has addresses, but no memory
  // Fills the arena with one-bits before each run, to expose reads of unwritten memory (NaN in floats).
  bool poison = false;
};

// A parameter or state of a plan; `type` is the stored type.
struct BoundState {
  std::string name;
  TensorType type;
};

struct PlanStep {                            // one kernel call of the plan, for explain and profiles
  std::string what;                          // op or functional
  std::string kernel;                        // "oneDNN matmul", "reference", "view"
  std::string scope;                         // NodeScope::text()
  std::string origin;                        // NodeScope::origin
  std::vector<std::string> inputs, outputs;  // types
  uint32_t phases = 0, parts = 0;
  uint64_t offset = 0, bytes = 0;  // location of the first output in the arena
  std::string target;              // parameter or state that the step writes into; "" for the arena
  bool in_place = false;
  bool on_host = false;        // runs on the host in a plan for a device with its own memory
  uint32_t node = UINT32_MAX;  // node of program(); UINT32_MAX: a copy added by the plan
};
struct MemoryReport {
  uint64_t arena_bytes = 0;      // allocated by the plan
  uint64_t unshared_bytes = 0;   // size if buffers shared no memory
  uint64_t state_bytes = 0;      // parameters and states
  uint64_t packed_bytes = 0;     // packed forms of constant parameters
  uint64_t workspace_bytes = 0;  // the largest workspace, which is part of the arena
};

// One timed run. Nanoseconds of the steady clock, or of the device clock, shifted to the steady clock at the start.
struct PlanTimes {
  struct Part {
    uint32_t step, phase, part;
    uint32_t thread;  // 0 is the caller; others in order of appearance
    uint64_t begin, end;
  };
  std::vector<uint64_t> stamps;  // before each step and after the last one
  bool by_device = false;        // device clock: steps ran back to back
  uint64_t nothing = 0;          // interval between two device events without work in between
  bool wants_parts = false;      // record `parts`, at the cost of two more clock reads per part
  std::vector<Part> parts;       // in order of completion
};

class Executable {
 public:
  virtual ~Executable() = default;
  // Runs a step. `inputs` are in the order of input_names() and must stay valid during the call. Outputs and updates
  // are complete on return.
  virtual void run(const void* const* inputs) = 0;
  // run() in two halves, so that the loss can be checked before a parameter or state changes. run_forward() stops
  // before the first step after the forward pass; run_rest() runs the remaining steps. If all steps belong to the
  // forward pass, run_forward() runs them all, including changes.
  virtual void run_forward(const void* const* inputs) = 0;
  virtual void run_rest(const void* const* inputs) = 0;
  // Runs a step, but changes parameters and states only if `*number`, an f32 output of the first half, is finite and at
  // most `most`. Returns whether it changed them. On return, results of the first half are available; a device may
  // still be running the second half.
  virtual bool run_if_finite(const void* const* inputs, const float* number,
                             float most = std::numeric_limits<float>::infinity()) {
    run_forward(inputs);
    if (!std::isfinite(*number) || *number > most) return false;
    run_rest(inputs);
    return true;
  }
  // Runs a step with timestamps, for profiles. run() contains no timing code.
  virtual void run_timed(const void* const* inputs, PlanTimes& times) = 0;
  // Runs a step with empty kernels, to measure the overhead of the plan.
  virtual void run_empty(const void* const* inputs) = 0;
  virtual const std::vector<std::string>& input_names() const = 0;
  // Returns parameters and states in the order in which bind() takes their memory.
  virtual const std::vector<BoundState>& states() const = 0;
  // Sets the memory for the following runs: states()[i] is at addresses[i]; null stands for its address at compile
  // time. This way one plan serves many sessions that share weights and have separate states. The memory must have the
  // stored type and layout, and memory that the program changes must not overlap other memory. Only one thread at a
  // time may bind and run a plan. Throws ErrorKind::Device for plans on a device with its own memory.
  virtual void bind(std::span<void* const> addresses) = 0;
  // bind() for plans on a device with its own memory, with tensors of its queue. The plan keeps the tensors of the last
  // eight bindings. Throws ErrorKind::Internal for plans in host memory.
  virtual void bind(std::span<const std::shared_ptr<DeviceTensor>> tensors);
  // Returns the queue of a plan on a device with its own memory; null for plans in host memory.
  virtual std::shared_ptr<DeviceQueue> queue() const { return nullptr; }
  virtual const TensorType& input_type(size_t i) const = 0;
  // Returns a result of the last run. It is a view into the memory of the plan, valid until the next run.
  virtual const HTensor& output(const std::string& name) const = 0;
  virtual const std::vector<PlanStep>& steps() const = 0;
  // Returns the chosen implementations and why others were not chosen: one entry per kind of call and scope.
  virtual const std::vector<Selected>& selected() const = 0;
  virtual MemoryReport memory() const = 0;
  virtual const Program& program() const = 0;  // after the last pass
};

// Returns the plan as a table: one line per step, then the memory.
std::string print_plan(const Executable& executable);
// Returns the names of passes in the order of compile(), for `explain --after`. Some passes run more than once.
std::vector<std::string> pass_names();

// Runs the passes, selects kernels and plans the memory. `binding` may be null for programs without parameters. Device
// "reference" evaluates every node by the slow reference. On other devices the reference evaluates nodes without a
// kernel.
std::unique_ptr<Executable> compile(const Program& program, TensorBinding* binding, Executor& executor,
                                    const CompileOptions& options = {});

}  // namespace harmonics::engine
