// Step inputs: inputs of a step's program besides the samples of streams, such as the learning rate. Their names begin
// with '@' and are defined only here.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "engine/program/tracer.hpp"

namespace harmonics::engine {

enum class StepInput : uint8_t {
  rate,     // f32: the learning rate
  step,     // i64: the number of the step, from 1
  counter,  // i64[2]: seed and step, the counter of random numbers
  keep,     // bool: whether to add gradients to those accumulated so far
  scale,    // f32: factor of the accumulated gradients of one part of the loss
};

struct StepInputRow {
  StepInput input;
  std::string_view name;  // "@lr"
  TensorType type;
  bool has_parts;  // part N > 0 of the loss has a separate input, "NAME:N"
};
const StepInputRow& step_input_row(StepInput input);

// A step input for one part of the loss.
struct StepInputPart {
  StepInput input;
  size_t part = 0;
};

// Returns the input in the program under trace.
HTensor step_input(Tracer& tracer, StepInput input, size_t part = 0);
// Returns the step input of this name, or nothing for inputs of streams. Throws ErrorKind::Name for a name that begins
// with '@' and is not in the table.
std::optional<StepInputPart> step_input_of(std::string_view name);

// Values of the step inputs of one program. Addresses stay valid for the lifetime of the object. Not thread-safe.
class StepValues {
 public:
  StepValues() = default;
  StepValues(const StepValues&) = delete;
  StepValues& operator=(const StepValues&) = delete;

  // `step` is also the second element of the counter.
  void set(float rate, int64_t step, uint64_t seed);
  void set_keep(bool keep) { keep_ = keep; }
  void set_scale(float scale, size_t part) { scales_.at(part) = scale; }  // after address() of this part
  const void* address(const StepInputPart& of);

 private:
  float rate_ = 0;
  bool keep_ = false;
  int64_t step_ = 0;
  int64_t counter_[2] = {0, 0};
  std::deque<float> scales_{1};  // a deque keeps addresses stable
};

}  // namespace harmonics::engine
