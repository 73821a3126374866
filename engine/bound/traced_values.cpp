#include "engine/bound/traced_values.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include "engine/model/safetensors.hpp"

namespace harmonics::engine {

namespace {

// Returns the rows of the first `n` of `batch` samples, or the whole value if its first axis is not a multiple of the
// batch.
HTensor counted_rows(const HTensor& value, int64_t n, int64_t batch) {
  const Shape& shape = value.shape();
  if (n == batch || shape.rank() == 0 || shape[0] % batch != 0) return value;
  std::vector<int64_t> dims = shape.vector();
  dims[0] = dims[0] / batch * n;
  return view_of({value.dtype(), Shape(dims)}, const_cast<void*>(value.bytes()));
}

}  // namespace

ValueFiles::ValueFiles(std::string folder, std::string model, FileCalls& calls)
    : folder_(std::move(folder)), model_(std::move(model)), calls_(calls) {
  if (const int failed = make_directories(folder_, calls_))
    throw Error(ErrorKind::Output, fmt::format("cannot create the folder '{}': {}", folder_, std::strerror(failed)));
}

void ValueFiles::write(const CompiledStep& step, const void* const* streams, int64_t n, int64_t batch) {
  const Program& program = step.lowered().program;
  TensorFile file;
  file.metadata = {{"harmonics.model", model_},
                   {"harmonics.first_sample", std::to_string(samples_)},
                   {"harmonics.samples", std::to_string(n)}};
  const std::string_view observed(kValueOutput);
  for (const NamedValue& output : program.outputs)
    if (output.name.starts_with(observed))
      file.tensors[output.name.substr(observed.size())] = counted_rows(step.executable().output(output.name), n, batch);
  for (const NamedValue& output : program.outputs)
    if (!output.name.starts_with(observed) && !output.name.starts_with(kFunctionOutput))
      file.tensors.try_emplace(result_name(output.name), counted_rows(step.executable().output(output.name), n, batch));
  size_t stream = 0;
  for (const Node* leaf : program.leaves(Op::input)) {
    if (step_input_of(leaf->callee)) continue;
    const TensorType& type = program.type(leaf->outputs.at(0));
    file.tensors.try_emplace(leaf->callee, counted_rows(view_of(type, const_cast<void*>(streams[stream])), n, batch));
    ++stream;
  }
  save_safetensors(file, (std::filesystem::path(folder_) / fmt::format("{}.safetensors", files_)).string(), calls_);
  tensors_ = file.tensors.size();
  samples_ += static_cast<uint64_t>(n);
  ++files_;
}

void trace_flow(BoundGraph& graph, int cycle, const RunSettings& run, ValueFiles& to) {
  const std::vector<int> producers = graph.graph().producers_used(cycle, false);
  const ResolvedSettings settings = graph.settings(cycle, run);
  const auto reader =
      graph.streams().reader(graph.graph(), producers, static_cast<uint64_t>(settings.batch), false, settings.seed);
  LoweringOptions o;
  o.mode = Mode::infer;
  o.cycle = cycle;
  o.batch = settings.batch;
  o.seed = settings.seed;
  o.device = run;
  o.observe = o.operations = true;
  o.wanted = graph.results(cycle);
  o.branches = graph.graph().branches(cycle);
  CompiledStep step(graph.lower(o), graph.store(), graph.executor(run.threads), graph.compile_options(run));
  std::vector<std::unique_ptr<Storage>> buffers;
  std::vector<uint64_t> bytes;
  std::vector<void*> read;
  for (const int n : producers) {
    const StreamType& type = graph.types().at(n);
    bytes.push_back(tensor_bytes(type.dtype, type.sample));
    buffers.push_back(std::make_unique<Storage>(bytes.back() * static_cast<uint64_t>(settings.batch)));
    read.push_back(buffers.back()->data());
  }
  std::vector<const void*> streams;  // in the order of the program
  for (const int n : step.lowered().inputs)
    streams.push_back(read[static_cast<size_t>(std::find(producers.begin(), producers.end(), n) - producers.begin())]);
  reader->begin(0);
  while (const uint64_t n = reader->read(read.data())) {
    for (size_t i = 0; i < read.size(); ++i)
      for (uint64_t row = n; row < static_cast<uint64_t>(settings.batch); ++row)
        std::memcpy(static_cast<std::byte*>(read[i]) + row * bytes[i], read[i], bytes[i]);
    step.check_indices(streams.data());
    step.set(streams.data(), 0, 1, settings.seed);
    step.run();
    to.write(step, streams.data(), static_cast<int64_t>(n), settings.batch);
  }
}

void trace_tokens(const Model& model, Executor& executor, const CompileOptions& compile,
                  const std::vector<int32_t>& tokens, ValueFiles& to) {
  if (tokens.empty()) throw Error(ErrorKind::Usage, "there is no token to trace");
  StepOptions options;
  options.mode = Mode::infer;
  options.tokens = static_cast<int64_t>(tokens.size());
  options.observe = options.operations = true;
  Lowered lowered = lower(model, options);
  std::vector<std::string> inputs;
  for (const Node* leaf : lowered.program.leaves(Op::input))
    if (!step_input_of(leaf->callee)) inputs.push_back(leaf->callee);
  if (inputs != std::vector<std::string>{"tokens"})
    throw Error(ErrorKind::Usage, fmt::format("'{}' has inputs other than tokens", model.name), {},
                {"bind its inputs: --producer NAME=ADDRESS"});
  CompiledStep step(std::move(lowered), *model.parameters, executor, compile);
  const void* streams[] = {tokens.data()};
  step.check_indices(streams);
  step.set(streams, 0, 1, 0);
  step.run();
  to.write(step, streams, 1, 1);
}

}  // namespace harmonics::engine
