// Executable: a program compiled for one device and one set of shapes. One linear plan, one arena, nothing allocated per step.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/model_limits.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/program/chooser.hpp"
#include "engine/program/functional.hpp"
#include "engine/program/program.hpp"

namespace harmonics {

class DeviceQueue;  // device_memory.hpp
class DeviceTensor;

// Threads that run parts of kernels. One for the whole process part that trains; results do not depend on their number.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  // body(context, part) for every part in [0, parts), in any order, possibly at once; returns when all are done. The body
  // must not throw.
  virtual void run(uint32_t parts, void (*body)(const void* context, uint32_t part), const void* context) = 0;
};
std::unique_ptr<Executor> make_sequential_executor();
// The caller and threads of its own, which look out for work some tens of microseconds and then sleep; one caller at a time. Every thread has its run of
// neighbouring parts, in each job of as many parts the same, and takes from others when it has done them. threads <= 1 gives the sequential one.
std::unique_ptr<Executor> make_team_executor(int threads);

// Where parameters and states live: the plan reads and replaces them in place. Addresses stay valid for the plan's life.
class TensorBinding {
 public:
  virtual ~TensorBinding() = default;
  virtual void* parameter(const std::string& name, const TensorType& type) = 0;  // parameter or state by name
  // Does a tensor of two dimensions lie with rows and columns exchanged? Programs that share the tensor get one answer: the
  // first to ask has its preference. `type` is as declared; parameter() is then asked with the type as it lies.
  virtual bool transposed(const std::string& name, const TensorType& type, bool preferred) {
    (void)name, (void)type, (void)preferred;
    return false;
  }
  // For programs on a device with memory of its own. One queue for all of them, so that what one changes the next one sees; and
  // the tensor there. By themselves: a queue each, and tensors that go there before every run and come back after it.
  virtual std::shared_ptr<DeviceQueue> queue_on(const ItemPtr& device);
  virtual std::shared_ptr<DeviceTensor> parameter_on(const std::shared_ptr<DeviceQueue>& queue, const std::string& name, const TensorType& type);
};

// What products of f32 matrices are computed in. Values, weights and totals are f32 in any case.
enum class Precision : uint8_t {
  fp32,
  fp16,       // operands rounded to fp16, sums of few terms in it, totals in fp32; a device without it is ErrorKind::Device
  automatic,  // fp16 where the device has it
  bf16,       // operands rounded to bf16, sums in fp32
  fp8,        // operands scaled and rounded to fp8 (E4M3), sums in fp32; what does not suit, as bf16
};
// "fp32", "fp16", "bf16", "fp8" or "auto"; throws ErrorKind::Usage.
Precision parse_precision(const std::string& text);
const char* precision_name(Precision precision);

// What a program runs on, and how.
struct DeviceSettings {
  std::string device = "cpu";  // or "reference"
  Precision precision = Precision::fp32;
};

struct CompileOptions : DeviceSettings {
  ModelLimits limits;
  Registry* registry = nullptr;                 // where devices are found; null: the global one
  std::vector<std::string> recompute;           // scope patterns
  bool fuse = true;                             // elementwise fusion and call fusion
  std::vector<std::string> disabled;            // passes switched off by name
  // Called with each pass's name and its result: `explain --after`.
  std::function<void(const std::string& pass, const Program&)> observe;
  bool training = false;                        // the program is a training step: implementations are asked for such
  // Fills the arena with ones before each run, so that reading what no step wrote shows (as NaN in floats).
  bool poison = false;
};

struct PlanStep {  // one kernel call site of the plan, for people (explain) and profiles
  std::string what;     // op or functional
  std::string kernel;   // "oneDNN matmul", "reference", "view"
  std::string scope;
  std::vector<std::string> inputs, outputs;  // types
  uint32_t phases = 0, parts = 0;
  uint64_t offset = 0, bytes = 0;  // of the first output in the arena
  std::string target;              // the parameter or state it is written into instead; "": the arena
  bool in_place = false;
  bool on_host = false;            // of a plan for a device with memory of its own: computed by the host, with copies
  uint32_t node = UINT32_MAX;  // of program(); UINT32_MAX: a copy the plan itself needs
};
struct MemoryReport {
  uint64_t arena_bytes = 0;     // what the plan allocates
  uint64_t unshared_bytes = 0;  // without reuse
  uint64_t state_bytes = 0;     // parameters and states
  uint64_t workspace_bytes = 0; // largest, part of the arena
};

// One timed run, in nanoseconds of the steady clock, or of a device's from the time on that this one showed when it began.
struct PlanTimes {
  struct Part {
    uint32_t step, phase, part;
    uint32_t thread;  // 0: the caller's; the others in the order they first appear
    uint64_t begin, end;
  };
  std::vector<uint64_t> stamps;  // one before each step and one after the last
  bool by_device = false;        // the device kept them: its steps followed each other, nobody waited in between
  uint64_t nothing = 0;          // what passes by that clock between two points that nothing is between
  bool wants_parts = false;      // costs two more looks at the clock a part
  std::vector<Part> parts;       // in the order they ended
};

class Executable {
 public:
  virtual ~Executable() = default;
  // Inputs by position of `input_names`; pointers must stay valid during the call. Outputs and updates are in place after it.
  virtual void run(const void* const* inputs) = 0;
  // run() in two halves: up to (not including) the first step in scope "gradient/", "recomputed/" or "optimizer/", and from
  // there. Between them the loss can be checked before any parameter or state is changed. When every step is forward the
  // first half is everything, changes included.
  virtual void run_forward(const void* const* inputs) = 0;
  virtual void run_rest(const void* const* inputs) = 0;
  // run(), but no parameter or state is changed when `number`, an f32 of the first half as output() gives it, is not finite: false then.
  // A device may still be at work on the second half when it returns; results of the first are there.
  virtual bool run_if_finite(const void* const* inputs, const float* number) {
    run_forward(inputs);
    if (!std::isfinite(*number)) return false;
    run_rest(inputs);
    return true;
  }
  // run() with a clock, for profiles. Nothing of it is in a run that is not timed.
  virtual void run_timed(const void* const* inputs, PlanTimes& times) = 0;
  // run() with an empty function in place of every kernel: what the plan itself costs.
  virtual void run_empty(const void* const* inputs) = 0;
  virtual const std::vector<std::string>& input_names() const = 0;
  virtual const TensorType& input_type(size_t i) const = 0;
  // A result of the last run: a view into the arena, valid until the next run.
  virtual const HTensor& output(const std::string& name) const = 0;
  virtual const std::vector<PlanStep>& steps() const = 0;
  // Who computes the calls of the program, and why the others do not: one for each kind of call in a scope.
  virtual const std::vector<Selected>& selected() const = 0;
  virtual MemoryReport memory() const = 0;
  virtual const Program& program() const = 0;  // after the last pass
};

// The plan as a table for people: one line a step, then the memory.
std::string print_plan(const Executable& executable);
// The names of the passes in the order compile() runs them, for `explain --after`; some run more than once.
std::vector<std::string> pass_names();

// The one ordered list of passes, then kernel selection and memory plan. `binding` may be null for programs without parameters.
// Device "cpu" or "reference" (every node evaluated by the slow reference). A node without kernel runs by the reference.
std::unique_ptr<Executable> compile(const Program& program, TensorBinding* binding, Executor& executor,
                                    const CompileOptions& options = {});

}  // namespace harmonics
