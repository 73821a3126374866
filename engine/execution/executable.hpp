// Executable: a program compiled for one device and one set of shapes: one linear plan and one arena; a step allocates
// nothing.
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

// Runs the parts of kernels on threads. Results do not depend on the number of threads.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  // Calls body(context, part) for every part in [0, parts), in any order and possibly at once; returns when all are
  // done. The body must not throw.
  virtual void run(uint32_t parts, void (*body)(const void* context, uint32_t part), const void* context) = 0;
};
std::unique_ptr<Executor> make_sequential_executor();
// Work-stealing pool: the caller and threads - 1 workers, one job at a time. Each thread has a fixed range of parts and
// steals when it is done; idle workers spin some tens of microseconds, then sleep. threads <= 1 returns the sequential
// executor.
std::unique_ptr<Executor> make_team_executor(int threads);

// Memory layout of a two-dimensional tensor: row-major as declared, or transposed.
enum class Layout : uint8_t { natural, transposed };

// A kernel's own form of a constant operand.
struct Packing {
  std::string name;  // of layout, instruction set and version; equal names give equal bytes
  uint64_t bytes;
  uint64_t piece;  // bytes of a piece; the last one may be shorter
  // Writes one piece to `to`. Pieces may be written in any order and by several threads.
  std::function<void(const void* elements, uint64_t piece, void* to)> pack;
  // Writes them all, one after the other.
  void pack_all(const void* elements, void* to) const {
    for (uint64_t i = 0; i * piece < bytes; ++i) pack(elements, i, static_cast<char*>(to) + i * piece);
  }
};

// Memory of parameters and states; the plan reads and replaces them in place. Addresses stay valid for the plan's life.
class TensorBinding {
 public:
  virtual ~TensorBinding() = default;
  virtual void* parameter(const std::string& name, const TensorType& type) = 0;  // parameter or state by name
  // Returns how a two-dimensional tensor is stored. All programs that share the tensor get the same answer: the
  // preference of the first that asked. `type` is as declared; parameter() is then called with the stored type.
  virtual Layout layout(const std::string& name, const TensorType& type, Layout preferred) {
    (void)name, (void)type, (void)preferred;
    return Layout::natural;
  }
  // The packed form of a parameter that no program changes: the known one of this packing, else created by `pack`.
  // Null if the parameter may change.
  virtual std::shared_ptr<const Storage> packed(const std::string& name, const Packing& packing) {
    (void)name, (void)packing;
    return nullptr;
  }
  // Whether no program of the binding's owner changes the parameter.
  virtual bool is_constant(const std::string& name) {
    (void)name;
    return false;
  }
  // Called before parameter() or parameter_on() of a program that changes the tensor.
  virtual void will_change(const std::string& name) { (void)name; }
  // The plan keeps this as long as it uses the address from parameter().
  virtual std::shared_ptr<const void> user_of(const std::string& name) {
    (void)name;
    return nullptr;
  }
  // Queue and mirrored tensor on a device with its own memory. Programs of one binding share one queue, so that each
  // sees the others' changes. Default: a new queue per program, and tensors copied before and after every run.
  virtual std::shared_ptr<DeviceQueue> queue_on(const ItemPtr& device);
  virtual std::shared_ptr<DeviceTensor> parameter_on(const std::shared_ptr<DeviceQueue>& queue, const std::string& name,
                                                     const TensorType& type);
};

// Precision of f32 matrix products. Values, weights and totals stay f32.
enum class Precision : uint8_t {
  fp32,
  fp16,       // fp16 operands, short sums in fp16, totals in fp32; ErrorKind::Device where unsupported
  automatic,  // decided by resolve_precision()
  bf16,       // bf16 operands, fp32 sums
  fp8,        // operands scaled to fp8 (E4M3), fp32 sums; unsuitable products use bf16
  int8,       // operands of weights of stored types (q8_0 ...) are quantised in blocks of 32 eight-bit integers
};
// "fp32", "fp16", "bf16", "fp8", "int8" or "auto"; throws ErrorKind::Usage.
Precision parse_precision(const std::string& text);
const char* precision_name(Precision precision);

// Device and precision of a program.
struct DeviceSettings {
  std::string device = "cpu";  // a device name, or "reference"
  Precision precision = Precision::fp32;
  std::string precision_reason = {};  // why `auto` chose it; empty: requested explicitly
  std::string policy = {};            // a plugin's, "NAME(setting=value)"; takes precedence over `precision`
  // Results to recompute in the backward pass of a training step, in the syntax of parse_recomputation().
  std::string recomputation = {};
};

struct CompileOptions : DeviceSettings {
  ModelLimits limits;
  Registry* registry = nullptr;           // device lookup; null: the global registry
  std::vector<std::string> recompute;     // scope patterns, in addition to `recomputation`
  uint32_t recompute_cheapest = 0;        // Recomputation::cheapest, where `recomputation` is "auto"
  bool fuse = true;                       // elementwise fusion and call fusion
  std::vector<std::string> disabled;      // passes switched off by name
  std::optional<PrecisionRecipe> recipe;  // null: the trivial one of `precision`
  // Called after each pass with its name and result, for `explain --after`.
  std::function<void(const std::string& pass, const Program&)> observe;
  bool training = false;   // a training step: implementations are chosen for training
  bool plan_only = false;  // the plan is inspected and never run: its arena has addresses, but no memory
  // Fills the arena with one-bits before each run, so that reading unwritten memory shows (as NaN in floats).
  bool poison = false;
};

// A parameter or state of a plan, with its type as stored.
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
  uint64_t offset = 0, bytes = 0;  // of the first output in the arena
  std::string target;              // parameter or state the output is written into; "": the arena
  bool in_place = false;
  bool on_host = false;        // runs on the host in a plan for a device with its own memory
  uint32_t node = UINT32_MAX;  // node of program(); UINT32_MAX: a copy added by the plan
};
struct MemoryReport {
  uint64_t arena_bytes = 0;      // allocated by the plan
  uint64_t unshared_bytes = 0;   // size if buffers shared no memory
  uint64_t state_bytes = 0;      // parameters and states
  uint64_t packed_bytes = 0;     // what kernels have packed of constant parameters, beside them
  uint64_t workspace_bytes = 0;  // largest workspace, part of the arena
};

// One timed run in nanoseconds: of the steady clock, or of the device's clock, offset to the steady clock at the start.
struct PlanTimes {
  struct Part {
    uint32_t step, phase, part;
    uint32_t thread;  // 0: the caller; others in order of appearance
    uint64_t begin, end;
  };
  std::vector<uint64_t> stamps;  // before each step and after the last
  bool by_device = false;        // device clock: steps ran back to back
  uint64_t nothing = 0;          // interval between two device events with no work in between
  bool wants_parts = false;      // costs two more clock reads per part
  std::vector<Part> parts;       // in order of completion
};

class Executable {
 public:
  virtual ~Executable() = default;
  // Runs a step. Inputs are in the order of `input_names` and must stay valid during the call. Outputs and updates are
  // complete on return.
  virtual void run(const void* const* inputs) = 0;
  // run() in two halves: run_forward() stops before the first step of a phase behind the forward pass, run_rest() runs
  // the remaining steps. Between them the loss can be checked before a parameter or state changes. If every step is
  // forward, the first half is everything, changes included.
  virtual void run_forward(const void* const* inputs) = 0;
  virtual void run_rest(const void* const* inputs) = 0;
  // Runs a step, but changes parameters and states only if `*number`, an f32 output of the first half, is finite and
  // not above `most`. Returns whether it did. A device may still run the second half on return; results of the first
  // half are available.
  virtual bool run_if_finite(const void* const* inputs, const float* number,
                             float most = std::numeric_limits<float>::infinity()) {
    run_forward(inputs);
    if (!std::isfinite(*number) || *number > most) return false;
    run_rest(inputs);
    return true;
  }
  // run() with timestamps, for profiles. Untimed runs contain no timing code.
  virtual void run_timed(const void* const* inputs, PlanTimes& times) = 0;
  // run() with empty kernels: the overhead of the plan itself.
  virtual void run_empty(const void* const* inputs) = 0;
  virtual const std::vector<std::string>& input_names() const = 0;
  // Parameters and states in the order that bind() takes their memory.
  virtual const std::vector<BoundState>& states() const = 0;
  // From the next run on, states()[i] is at addresses[i]; null: at its address of compile time. One plan
  // serves many sessions that share weights and have their own states. The memory must have the stored type and
  // layout; what the program changes must not overlap anything else. A plan is bound and run by one thread at a time.
  // Throws ErrorKind::Device for plans in a device's own memory.
  virtual void bind(std::span<void* const> addresses) = 0;
  // The same for a plan in a device's own memory, with tensors of its queue; it keeps those of the last eight bindings.
  // Throws ErrorKind::Internal for plans in host memory.
  virtual void bind(std::span<const std::shared_ptr<DeviceTensor>> tensors);
  // Of a plan in a device's own memory; null: in host memory.
  virtual std::shared_ptr<DeviceQueue> queue() const { return nullptr; }
  virtual const TensorType& input_type(size_t i) const = 0;
  // Result of the last run: a view into the arena, valid until the next run.
  virtual const HTensor& output(const std::string& name) const = 0;
  virtual const std::vector<PlanStep>& steps() const = 0;
  // Chosen implementations, with the reasons why others were not: one entry per kind of call and scope.
  virtual const std::vector<Selected>& selected() const = 0;
  virtual MemoryReport memory() const = 0;
  virtual const Program& program() const = 0;  // after the last pass
};

// Prints the plan as a table: one line per step, then the memory.
std::string print_plan(const Executable& executable);
// Pass names in the order of compile(), for `explain --after`; some passes run more than once.
std::vector<std::string> pass_names();

// Runs the list of passes, selects kernels and plans the memory. `binding` may be null for programs without parameters.
// Device "reference" evaluates every node by the slow reference; so do nodes without a kernel elsewhere.
std::unique_ptr<Executable> compile(const Program& program, TensorBinding* binding, Executor& executor,
                                    const CompileOptions& options = {});

}  // namespace harmonics::engine
