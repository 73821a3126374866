#include "tests/bench/program.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <harmonics/element_conversion.hpp>
#include <harmonics/philox.hpp>

#include "engine/tensor/value.hpp"

namespace harmonics::engine::bench {

namespace {

Precision program_precision = Precision::fp32;

void fill(const TensorType& type, void* to, PhiloxStream& random) {
  if (type.dtype == DType::I32) {
    std::generate_n(static_cast<int32_t*>(to), type.shape.count(),
                    [&] { return static_cast<int32_t>(random.uniform() * kWholeLimit); });
    return;
  }
  constexpr int64_t kChunk = 4096;  // a multiple of every block
  float numbers[kChunk];
  // Quantising some stored types searches for scales, which is slow, so their numbers repeat.
  const int64_t count = type.shape.count(), drawn = is_stored(type.dtype) ? std::min(count, 64 * kChunk) : count;
  for (int64_t at = 0; at < drawn; at += kChunk) {
    const int64_t n = std::min(kChunk, drawn - at);
    for (int64_t i = 0; i < n; ++i) numbers[i] = random.uniform() * 2 - 1;
    encode_elements(type.dtype, numbers, static_cast<char*>(to) + run_bytes(type.dtype, at), n);
  }
  const size_t all = type.bytes(), period = run_bytes(type.dtype, drawn);
  for (size_t at = period; at < all; at += period)
    std::memcpy(static_cast<char*>(to) + at, to, std::min(period, all - at));
}

}  // namespace

void set_program_precision(Precision precision) { program_precision = precision; }

class PreparedProgram::Constants final : public TensorBinding {
 public:
  void* parameter(const std::string& name, const TensorType&) override { return elements_.at(name)->data(); }
  bool is_constant(const std::string&) override { return true; }
  std::vector<std::shared_ptr<const Storage>> packed(std::span<const PackedParameter> parameters) override {
    std::vector<std::shared_ptr<const Storage>> all;
    for (const PackedParameter& p : parameters) {
      const auto to = std::make_shared<Storage>(p.packing.bytes);
      p.packing.pack_all(elements_.at(p.name)->data(), to->data());
      all.push_back(to);
    }
    return all;
  }
  void add(const std::string& name, std::shared_ptr<Storage> elements) { elements_[name] = std::move(elements); }

 private:
  std::map<std::string, std::shared_ptr<Storage>> elements_;
};

PreparedProgram::~PreparedProgram() = default;

PreparedProgram::PreparedProgram(const std::vector<TensorType>& inputs, const Trace& trace, int threads,
                                 size_t constants)
    : constants_(std::make_unique<Constants>()), executor_(make_team_executor(threads)) {
  Tracer tracer("bench");
  std::vector<HTensor> traced;
  PhiloxStream random(philox_key(1, 0), 0);
  for (const TensorType& type : inputs) {
    const std::string name = fmt::format("in{}", traced.size());
    buffers_.push_back(std::make_shared<Storage>(type.bytes()));
    fill(type, buffers_.back()->data(), random);
    if (traced.size() + constants < inputs.size()) {
      traced.push_back(tracer.input(name, type));
      pointers_.push_back(buffers_.back()->data());
    } else {
      traced.push_back(tracer.parameter(name, type));
      constants_->add(name, buffers_.back());
    }
  }
  size_t i = 0;
  for (const HTensor& result : trace(traced)) tracer.output(fmt::format("out{}", i++), result);
  CompileOptions options;
  options.precision = program_precision;
  plan_ = compile(tracer.take(), constants_.get(), *executor_, options);
}

std::string PreparedProgram::kernels() const {
  std::string text;
  for (const PlanStep& step : plan_->steps()) text += (text.empty() ? "" : " + ") + step.kernel;
  return text;
}

void add_program(const std::string& name, const std::vector<Shape>& f32_inputs, Trace trace, double flops,
                 double bytes) {
  std::vector<TensorType> types;
  for (const Shape& shape : f32_inputs) types.push_back({DType::F32, shape});
  add_program(name, std::move(types), std::move(trace), flops, bytes);
}

void add_program(const std::string& name, std::vector<TensorType> inputs, Trace trace, double flops, double bytes,
                 size_t constants) {
  for (int threads : {1, 2})
    benchmark::RegisterBenchmark(fmt::format("{}/threads:{}", name, threads).c_str(),
                                 [=](benchmark::State& state) {
                                   PreparedProgram program(inputs, trace, threads, constants);
                                   measure(state, {.flops = flops, .bytes = bytes, .threads = threads},
                                           [&] { program.run(); });
                                   state.SetLabel(program.kernels());
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}

}  // namespace harmonics::engine::bench
