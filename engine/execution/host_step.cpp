#include "engine/execution/host_step.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include "engine/passes/pass.hpp"
#include "engine/program/host_function.hpp"
#include "engine/program/op.hpp"
#include "engine/program/scan.hpp"

namespace harmonics::engine {

namespace {

// Views are part of the context, so that a run allocates nothing. An Executable is run by one thread at a time.
struct ReferenceStep {
  decltype(OpRow::evaluate) evaluate;
  AttributeMap attributes;
  std::vector<ConstView> inputs;
  std::vector<View> outputs;
  int64_t index_limit = -1;  // limit of the indices in input 1; -1: no indices
};

template <typename T>
void clamp_into(const void* from, void* to, int64_t count, int64_t limit) {
  const T* source = static_cast<const T*>(from);
  T* result = static_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) {
    T index = source[i];
    if constexpr (std::is_signed_v<T>) index = std::max<T>(index, 0);
    if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(limit)) index = static_cast<T>(limit - 1);
    result[i] = index;
  }
}

void clamp_indices(const TensorType& type, const void* from, void* to, int64_t limit) {
  const int64_t n = type.shape.count();
  switch (type.dtype) {
    case DType::U8:
      return clamp_into<uint8_t>(from, to, n, limit);
    case DType::I8:
      return clamp_into<int8_t>(from, to, n, limit);
    case DType::I16:
      return clamp_into<int16_t>(from, to, n, limit);
    case DType::U16:
      return clamp_into<uint16_t>(from, to, n, limit);
    case DType::I32:
      return clamp_into<int32_t>(from, to, n, limit);
    case DType::U32:
      return clamp_into<uint32_t>(from, to, n, limit);
    case DType::I64:
      return clamp_into<int64_t>(from, to, n, limit);
    case DType::U64:
      return clamp_into<uint64_t>(from, to, n, limit);
    default:
      throw Error(ErrorKind::Internal, "indices of type " + type.str());
  }
}

void run_reference(const void* context, void* const* buffers, uint32_t, uint32_t) {
  auto& step = *static_cast<ReferenceStep*>(const_cast<void*>(context));
  const size_t n = step.inputs.size();
  for (size_t i = 0; i < n; ++i) step.inputs[i].data = buffers[i];
  for (size_t i = 0; i < step.outputs.size(); ++i) step.outputs[i].data = buffers[n + i];
  if (step.index_limit > 0) {
    void* clamped = buffers[n + step.outputs.size()];
    clamp_indices(step.inputs[1].type, buffers[1], clamped, step.index_limit);
    step.inputs[1].data = clamped;
  }
  step.evaluate(step.attributes, step.inputs, step.outputs);
}

struct HostCallStep {
  std::shared_ptr<const HostFunction> function;
  std::vector<TensorType> inputs, outputs;
  NodeScope scope;
};

std::vector<HTensor> call(const HostCallStep& step, const std::vector<HTensor>& inputs) {
  try {
    return step.function->run(inputs);
  } catch (Error& e) {
    const std::string& origin = step.scope.origin;
    throw e.note("note: in " + step.scope.text() + (origin.empty() ? "" : ", " + origin));
  }
}

void run_host_call(const void* context, void* const* buffers, uint32_t, uint32_t) {
  const auto& step = *static_cast<const HostCallStep*>(context);
  std::vector<HTensor> inputs;
  for (size_t i = 0; i < step.inputs.size(); ++i) inputs.push_back(view_of(step.inputs[i], buffers[i]));
  const std::vector<HTensor> results = call(step, inputs);
  if (results.size() != step.outputs.size())
    throw Error(ErrorKind::Plugin, fmt::format("'{}' returned {} results instead of {}", step.function->name(),
                                               results.size(), step.outputs.size()));
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorType given = type_of(results[i]);
    if (given != step.outputs[i])
      throw Error(ErrorKind::Plugin, fmt::format("'{}' returned {} instead of {}", step.function->name(), given.str(),
                                                 step.outputs[i].str()));
    if (given.bytes()) std::memcpy(buffers[inputs.size() + i], results[i].bytes(), given.bytes());
  }
}

// Runs a body per step. The body reads its carries from the memory of the results, into which every step copies its
// carries. Pointers are part of the context, so that a run allocates nothing.
struct ScanStep {
  std::shared_ptr<Executable> body;
  ScanLayout at;
  struct Slice {
    size_t buffer;
    uint64_t bytes;
  };
  std::vector<Slice> reads;                  // by input of the body
  std::vector<Slice> writes;                 // by output of the body
  std::vector<const void*> inputs, results;  // of the body
};

void copy_slice(void* to, const void* from, uint64_t bytes) {
  if (bytes) std::memcpy(to, from, bytes);
}

void run_scan(const void* context, void* const* buffers, uint32_t, uint32_t) {
  auto& step = *static_cast<ScanStep*>(const_cast<void*>(context));
  const ScanLayout& at = step.at;
  const size_t operands = at.steady() + at.xs;
  void* const* results = buffers + operands;
  for (size_t i = 0; i < at.carries; ++i) copy_slice(results[i], buffers[i], step.writes[i].bytes);
  const auto piece = [](void* whole, int64_t place, uint64_t bytes) {
    return static_cast<std::byte*>(whole) + static_cast<uint64_t>(place) * bytes;
  };
  for (int64_t number = 0; number < at.length; ++number) {
    const int64_t place = at.place(number);
    for (size_t i = 0; i < step.reads.size(); ++i) {
      const auto [buffer, bytes] = step.reads[i];
      step.inputs[i] = buffer < at.carries    ? results[buffer]
                       : buffer < at.steady() ? buffers[buffer]
                                              : piece(buffers[buffer], place, bytes);
    }
    step.body->run(step.inputs.data());
    for (size_t i = 0; i < step.writes.size(); ++i)
      copy_slice(i < at.carries ? results[i] : piece(results[i], place, step.writes[i].bytes), step.results[i],
                 step.writes[i].bytes);
  }
}

void run_copy(const void* context, void* const* buffers, uint32_t, uint32_t) {
  if (const uint64_t bytes = *static_cast<const uint64_t*>(context)) std::memmove(buffers[1], buffers[0], bytes);
}

}  // namespace

HostKernel reference_kernel(const Program& program, const Node& node) {
  const OpRow& row = op_row(node.op);
  if (!row.evaluate)
    throw Error(ErrorKind::Device, fmt::format("neither the device nor the reference can run '{}'", row.name));
  auto step = std::make_shared<ReferenceStep>();
  step->evaluate = row.evaluate;
  step->attributes = node.attributes;
  for (const TensorType& t : input_types(program, node)) step->inputs.push_back({t, nullptr});
  for (const TensorType& t : output_types(program, node)) step->outputs.push_back({t, nullptr});
  uint64_t workspace = 0;
  if (node.op == Op::gather || node.op == Op::scatter_add) {
    step->index_limit = step->inputs[0].type.shape[static_cast<uint32_t>(node.attributes.integer("axis"))];
    workspace = step->inputs[1].type.bytes();
  }
  return {run_reference, step, workspace, "reference"};
}

HostKernel scan_kernel(const Node& node, std::shared_ptr<Executable> body) {
  auto step = std::make_shared<ScanStep>(ScanStep{std::move(body), ScanLayout(node), {}, {}, {}, {}});
  const std::vector<std::string>& names = step->body->input_names();
  for (size_t i = 0; i < names.size(); ++i)
    step->reads.push_back({std::stoul(names[i]), step->body->input_type(i).bytes()});
  step->inputs.resize(names.size());
  for (const NamedValue& output : node.body->outputs) {
    const HTensor& value = step->body->output(output.name);
    step->writes.push_back({step->writes.size(), type_of(value).bytes()});
    step->results.push_back(value.bytes());
  }
  return {run_scan, step, 0, "scan"};
}

HostKernel host_call_kernel(const Program& program, const Node& node) {
  auto step = std::make_shared<HostCallStep>(
      HostCallStep{node.host, input_types(program, node), output_types(program, node), program.scope_of(node)});
  return {run_host_call, step, 0, "plugin"};
}

HostKernel host_kernel_of(const Program& program, const Node& node, const CompileBody& compile_body) {
  if (node.op == Op::scan) return scan_kernel(node, compile_body(*node.body));
  return node.op == Op::host_call ? host_call_kernel(program, node) : reference_kernel(program, node);
}

HostKernel copy_kernel(uint64_t bytes) { return {run_copy, std::make_shared<uint64_t>(bytes), 0, "copy"}; }

}  // namespace harmonics::engine
