#include "engine/runtime/compiled_step.hpp"

#include <cstring>

namespace harmonics {

CompiledStep::CompiledStep(Lowered lowered, ParameterStore& store, Executor& executor, const CompileOptions& options)
    : lowered_(std::move(lowered)), executable_(compile(lowered_.program, &store, executor, options)) {
  std::vector<const Node*> leaves = lowered_.program.leaves(Op::input);
  std::vector<std::string> streams;  // stream inputs are traced first, in the order of Lowered::inputs
  for (const Node* leaf : leaves)
    if (leaf->callee[0] != '@') streams.push_back(leaf->callee);
  for (const std::string& name : executable_->input_names()) {
    int slot = -1;
    const void* fixed = name == "@lr" ? static_cast<const void*>(&lr_) : name == "@step" ? static_cast<const void*>(&step_) : static_cast<const void*>(counter_);
    for (size_t i = 0; i < streams.size(); ++i)
      if (streams[i] == name) slot = static_cast<int>(i);
    stream_slot_.push_back(slot);
    inputs_.push_back(slot < 0 ? fixed : nullptr);
  }
  if (lowered_.program.output("loss")) loss_ = executable_->output("loss").data<float>();
  for (const LossInfo& info : lowered_.losses) {
    layer_losses_.push_back(executable_->output(info.name + ".loss").data<float>());
    correct_.push_back(info.accuracy ? executable_->output(info.name + ".correct").data<float>() : nullptr);
  }
}

void CompiledStep::set(const void* const* streams, float lr, int64_t step, uint64_t seed) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (stream_slot_[i] >= 0) inputs_[i] = streams[stream_slot_[i]];
  lr_ = lr;
  step_ = step;
  std::memcpy(&counter_[0], &seed, sizeof seed);
  counter_[1] = step;
}

}  // namespace harmonics
