#include "engine/bound/model_rows.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/flow/compiled_step.hpp"
#include "engine/streams/streams.hpp"

namespace harmonics::engine {

namespace {

template <typename T>
bool equal_elements(const void* a, const void* b, size_t bytes) {
  return std::equal(static_cast<const T*>(a), static_cast<const T*>(a) + bytes / sizeof(T), static_cast<const T*>(b));
}

// Returns whether two arrays have equal elements. Floats are compared as numbers, because a cast turns -0.0 into 0.
bool same_numbers(DType dtype, const void* a, const void* b, size_t bytes) {
  if (dtype == DType::F32) return equal_elements<float>(a, b, bytes);
  if (dtype == DType::F64) return equal_elements<double>(a, b, bytes);
  return std::memcmp(a, b, bytes) == 0;
}

std::vector<std::string> input_names(const Lowered& lowered) {
  std::vector<std::string> names;
  for (const Node* leaf : lowered.program.leaves(Op::input))
    if (!step_input_of(leaf->callee)) names.push_back(leaf->callee);
  return names;
}

// Returns a graph with only producers, for StreamSet.
Graph producers_of(const Model& model, const std::vector<std::string>& names) {
  Graph graph;
  graph.name = model.name;
  for (const std::string& name : names) {
    GraphNode node{};
    node.kind = DeclarationKind::Producer;
    node.name = name;
    graph.nodes.push_back(std::move(node));
  }
  graph.cycles.emplace_back();
  return graph;
}

// A result and the consumer of its samples.
struct Delivered {
  std::string output;
  TensorType sample;
  std::unique_ptr<Sink> sink;
};

std::vector<Delivered> delivered(const Lowered& lowered, std::vector<Binding> consumers, Registry& registry,
                                 bool shows) {
  std::vector<Delivered> all;
  std::vector<std::string> names;
  for (const NamedValue& output : lowered.program.outputs) {
    if (output.name.starts_with(kValueOutput) || output.name.starts_with(kFunctionOutput)) continue;
    const TensorType type = lowered.program.type(output.value);
    names.push_back(result_name(output.name));
    const std::string& name = names.back();
    auto bound = std::find_if(consumers.begin(), consumers.end(), [&](const Binding& b) { return b.name == name; });
    if (bound == consumers.end())
      bound = std::find_if(consumers.begin(), consumers.end(), [](const Binding& b) { return b.name.empty(); });
    if (bound == consumers.end() && !shows) continue;
    const Address address = bound == consumers.end() ? parse_address("stdout:") : bound->address;
    if (bound != consumers.end()) consumers.erase(bound);
    all.push_back(
        {output.name, {type.dtype, type.shape.from(1)}, std::make_unique<Sink>(open_sink(registry, name, address))});
  }
  if (consumers.empty()) return all;
  const std::string& wrong = consumers.front().name;
  Error e(ErrorKind::Usage, wrong.empty()
                                ? fmt::format("there is no result left for {}", consumers.front().address.str())
                                : fmt::format("the model has no result named '{}'", wrong));
  if (const std::string meant = did_you_mean(wrong, names); !meant.empty()) e.note(meant);
  throw e;
}

// One input: reads samples of the stream's type and converts them to the model's type.
class RowInput {
 public:
  RowInput(const std::string& name, const TensorType& batched, const StreamType& stream)
      : name_(name), read_{stream.dtype, batched.shape}, taken_(batched) {
    const TensorType sample{batched.dtype, batched.shape.from(1)};
    const bool converts = is_integer(batched.dtype);
    if (stream.sample != sample.shape || (stream.dtype != batched.dtype && !converts))
      throw Error(ErrorKind::Shape, fmt::format("input '{}' of the model takes samples of {}, but its stream has {}",
                                                name, sample.str(), sample_type_text(stream.dtype, stream.sample)));
    samples_ = std::make_unique<Storage>(read_.bytes());
    if (stream.dtype != batched.dtype) converted_ = std::make_unique<Storage>(taken_.bytes());
  }
  void* samples() const { return samples_->data(); }
  // Fills a batch of `n` samples up with copies of its first one, and returns it in the model's type.
  const void* batch(int64_t n) {
    auto* bytes = static_cast<std::byte*>(samples_->data());
    const auto size = static_cast<int64_t>(read_.bytes()) / read_.shape[0];
    for (int64_t i = n; i < read_.shape[0]; ++i) std::copy_n(bytes, size, bytes + i * size);
    if (!converted_) return bytes;
    const HTensor read = view_of(read_, bytes), numbers = cast(read, taken_.dtype);
    if (!same_numbers(read_.dtype, cast(numbers, read_.dtype).bytes(), bytes, read_.bytes()))
      throw Error(ErrorKind::Stream, fmt::format("the stream of input '{}' holds numbers that {} does not have", name_,
                                                 dtype_name(taken_.dtype)));
    std::copy_n(static_cast<const std::byte*>(numbers.bytes()), taken_.bytes(),
                static_cast<std::byte*>(converted_->data()));
    return converted_->data();
  }

 private:
  std::string name_;
  TensorType read_, taken_;
  std::unique_ptr<Storage> samples_, converted_;
};

}  // namespace

RowReport infer_rows(const Model& model, Executor& executor, RowSettings settings) {
  Registry& registry = settings.compile.registry ? *settings.compile.registry : Registry::global();
  StepOptions options;
  options.mode = Mode::infer;
  const std::vector<std::string> names = input_names(lower(model, options));
  const Graph graph = producers_of(model, names);
  StreamSet streams;
  for (Binding& b : settings.producers) streams.bind(graph, registry, b.name, std::move(b.address));
  std::vector<int> producers;
  for (size_t i = 0; i < names.size(); ++i) {
    producers.push_back(static_cast<int>(i));
    if (!streams.bound(producers.back()))
      throw Error(ErrorKind::Usage, fmt::format("input '{}' of the model has no producer", names[i]), {},
                  {fmt::format("bind it: --producer {}=file:PATH", names[i])});
  }
  const std::map<int, StreamType> types = streams.types(graph);
  options.batch = static_cast<int64_t>(streams.batch().value_or(static_cast<uint64_t>(settings.batch)));
  if (!types.empty()) options.tokens = types.begin()->second.sample.count();
  options.observe = options.operations = settings.values != nullptr;
  const auto reader =
      streams.reader(graph, producers, static_cast<uint64_t>(options.batch), false, settings.seed, std::nullopt);
  CompiledStep step(lower(model, options), *model.parameters, executor, settings.compile);
  const std::vector<const Node*> leaves = step.lowered().program.leaves(Op::input);
  std::vector<RowInput> inputs;
  std::vector<void*> samples;
  std::vector<const void*> taken(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    inputs.emplace_back(names[i], step.lowered().program.type(leaves[i]->outputs.at(0)), types.at(producers[i]));
    samples.push_back(inputs.back().samples());
  }
  std::vector<Delivered> results = delivered(step.lowered(), std::move(settings.consumers), registry, !settings.values);

  RowReport report;
  const auto begun = std::chrono::steady_clock::now();
  reader->begin(0);
  while (const uint64_t n = reader->read(samples.data())) {
    for (size_t i = 0; i < inputs.size(); ++i) taken[i] = inputs[i].batch(static_cast<int64_t>(n));
    step.check_indices(taken.data());
    step.set(taken.data(), 0, 1, 0);
    step.run();
    if (settings.values) settings.values->write(step, taken.data(), static_cast<int64_t>(n), options.batch);
    for (Delivered& r : results)
      r.sink->push(r.sample.dtype, r.sample.shape, n, step.executable().output(r.output).bytes());
    report.samples += n;
  }
  for (Delivered& r : results) r.sink->finish();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return report;
}

}  // namespace harmonics::engine
