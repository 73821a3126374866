#include "engine/flow/compiled_step.hpp"

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

// Returns the index of the first number outside [0, limit), or n if there is none. The cast to unsigned makes negative
// numbers large.
template <typename T>
int64_t first_outside(const void* data, int64_t n, int64_t limit) {
  const T* p = static_cast<const T*>(data);
  for (int64_t i = 0; i < n; ++i)
    if (static_cast<uint64_t>(p[i]) >= static_cast<uint64_t>(limit)) return i;
  return n;
}

int64_t first_outside(DType dtype, const void* data, int64_t n, int64_t limit) {
  switch (dtype) {
    case DType::U8:
      return first_outside<uint8_t>(data, n, limit);
    case DType::I8:
      return first_outside<int8_t>(data, n, limit);
    case DType::U16:
      return first_outside<uint16_t>(data, n, limit);
    case DType::I16:
      return first_outside<int16_t>(data, n, limit);
    case DType::U32:
      return first_outside<uint32_t>(data, n, limit);
    case DType::I32:
      return first_outside<int32_t>(data, n, limit);
    case DType::U64:
      return first_outside<uint64_t>(data, n, limit);
    case DType::I64:
      return first_outside<int64_t>(data, n, limit);
    default:
      return n;
  }
}

}  // namespace

CompiledStep::CompiledStep(Lowered lowered, ParameterStore& store, Executor& executor, const CompileOptions& options)
    : lowered_(std::move(lowered)), executable_(compile(lowered_.program, &store, executor, options)) {
  files_ = store.files();  // read here, because compile() has copied the tensors that the program changes
  std::vector<const Node*> leaves = lowered_.program.leaves(Op::input);
  std::vector<std::string> streams;  // the stream inputs are traced first, in the order of Lowered::inputs
  for (const Node* leaf : leaves)
    if (!step_input_of(leaf->callee)) streams.push_back(leaf->callee);
  for (size_t i = 0; i < lowered_.inputs.size(); ++i)
    if (lowered_.index_limits[i] > 0)
      indices_.push_back(
          {i, leaves[i]->callee, lowered_.program.type(leaves[i]->outputs.at(0)), lowered_.index_limits[i]});
  for (const std::string& name : executable_->input_names()) {
    int slot = -1;
    const std::optional<StepInputPart> own = step_input_of(name);
    for (size_t i = 0; i < streams.size(); ++i)
      if (streams[i] == name) slot = static_cast<int>(i);
    stream_slot_.push_back(slot);
    inputs_.push_back(own ? values_.address(*own) : nullptr);
  }
  if (lowered_.program.output("loss")) loss_ = executable_->output("loss").data<float>();
  parts_ = means_of(lowered_.parts);
  for (const LossInfo& info : lowered_.losses) {
    layer_parts_.push_back(means_of(info.parts));
    std::vector<BatchMean>& figures = figures_.emplace_back();
    for (const LossFigure& figure : info.figures) figures.push_back(mean_of(figure.output, -1));
    correct_.push_back(info.accuracy ? mean_of(info.name + ".correct", info.accuracy_of) : BatchMean());
    if (info.accuracy && info.accuracy_of < 0) correct_.back().places = static_cast<double>(info.counted);
  }
}

BatchMean CompiledStep::mean_of(const std::string& output, int counted) const {
  BatchMean mean{executable_->output(output).data<float>()};
  if (counted < 0) return mean;
  const CountedPositions& places = lowered_.counted.at(static_cast<size_t>(counted));
  mean.counted = executable_->output(places.output).data<float>();
  mean.places = static_cast<double>(places.places);
  return mean;
}

std::vector<BatchMean> CompiledStep::means_of(const std::vector<LossPart>& parts) const {
  std::vector<BatchMean> means;
  for (const LossPart& part : parts) means.push_back(mean_of(part.output, part.counted));
  return means;
}

void CompiledStep::check_indices(const void* const* streams) const {
  for (const Indices& c : indices_) {
    const int64_t bad = first_outside(c.type.dtype, streams[c.stream], c.type.shape.count(), c.limit);
    if (bad == c.type.shape.count()) continue;
    const auto* at =
        static_cast<const std::byte*>(streams[c.stream]) + static_cast<size_t>(bad) * element_bytes(c.type.dtype);
    const int64_t value = cast(view_of({c.type.dtype, {}}, const_cast<std::byte*>(at)), DType::I64).item<int64_t>();
    throw Error(
        ErrorKind::Stream,
        fmt::format("stream '{}' holds {}, but the graph knows {} classes, numbered from 0 to {}", c.name, value,
                    c.limit, c.limit - 1),
        {},
        {fmt::format("it is in sample {} of the batch; correct the data, or declare the classes: producer {} {{N}};",
                     bad / (c.type.shape.count() / c.type.shape[0]), c.name)});
  }
}

void CompiledStep::set(const void* const* streams, float lr, int64_t step, uint64_t seed) {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (stream_slot_[i] >= 0) inputs_[i] = streams[stream_slot_[i]];
  values_.set(lr, step, seed);
}

}  // namespace harmonics::engine
