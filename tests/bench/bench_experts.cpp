// A training step of a feed-forward network of 16 experts, two per token, compared with a dense network with the same
// number of products per token: forward, gradients of the input and of all weights, AdamW.
#include <algorithm>

#include <fmt/core.h>

#include <harmonics/ops.hpp>
#include <harmonics/philox.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/step_input.hpp"
#include "engine/training/lower.hpp"
#include "tests/bench/measure.hpp"
#include "tests/bench/workload.hpp"

namespace harmonics::engine::bench {

namespace {

constexpr int64_t kTokens = 2048, kWidth = 512, kInner = 1024, kExperts = 16, kUsed = 2;
constexpr double kDeviation = 0.03;

HTensor declared(Tracer& tracer, ParameterStore& store, const std::string& name, const Shape& shape) {
  const TensorType type{DType::F32, shape};
  store.declare(name, type, Role::weight, {HX_INIT_NORMAL, 0, kDeviation}, 1);
  return tracer.parameter(name, type);
}

HTensor mapped(const HTensor& x, const HTensor& weight) { return apply("linear", {}, {x, weight}).at(0); }

HTensor dense_network(Tracer& tracer, ParameterStore& store, const HTensor& x) {
  const auto weight = [&](const char* name, int64_t n, int64_t k) { return declared(tracer, store, name, {n, k}); };
  const HTensor gate = mapped(x, weight("gate", kUsed * kInner, kWidth)),
                up = mapped(x, weight("up", kUsed * kInner, kWidth));
  return mapped(silu(gate) * up, weight("down", kWidth, kUsed * kInner));
}

HTensor experts_network(Tracer& tracer, ParameterStore& store, const HTensor& x) {
  const HTensor scores = mapped(x, declared(tracer, store, "router", {kExperts, kWidth}));
  const auto chosen = apply("router", AttributeMap().set("used", kUsed).set("normalized", true), {scores});
  const auto sent = apply("dispatch", AttributeMap().set("count", kExperts), {x, chosen[1]});
  const auto map = [&](const HTensor& rows, const char* name, int64_t n, int64_t k) {
    std::vector<HTensor> inputs{rows, sent[2]};
    for (int64_t e = 0; e < kExperts; ++e)
      inputs.push_back(declared(tracer, store, fmt::format("{}[{}]", name, e), {n, k}));
    return apply("grouped_linear", {}, inputs).at(0);
  };
  const HTensor gate = map(sent[0], "gate", kInner, kWidth), up = map(sent[0], "up", kInner, kWidth);
  const HTensor down = map(silu(gate) * up, "down", kWidth, kInner);
  return apply("combine", {}, {down, sent[1], chosen[0]}).at(0);
}

using Network = HTensor (*)(Tracer&, ParameterStore&, const HTensor&);

// Scales the input, so that the network's input has a gradient, and takes the mean square of the output.
Model model_with(Network network) {
  Model model;
  model.name = "feed_forward";
  const auto parameters = model.parameters;
  model.entries.emplace_back("loss", [network, parameters](Tracer& tracer, const EntrySizes&, EntryResults&) {
    const HTensor x = tracer.input("x", {DType::F32, {kTokens, kWidth}});
    const HTensor gain = declared(tracer, *parameters, "gain", {kWidth});
    const HTensor y = network(tracer, *parameters, x * (gain + 1.0));
    tracer.output("loss", reduce_mean(y * y, {0, 1}));
  });
  return model;
}

void measure_step(benchmark::State& state, Network network, int threads) {
  const Model model = model_with(network);
  StepOptions how;
  how.optimizer = parse_optimizer("adamw(lr=1e-4)");
  how.device.device = "cpu";
  const Lowered lowered = lower(model, how);
  const auto executor = make_team_executor(threads);
  CompileOptions options;
  options.device = "cpu";
  options.training = true;
  const auto plan = compile(lowered.program, model.parameters.get(), *executor, options);
  std::vector<float> x(static_cast<size_t>(kTokens * kWidth));
  PhiloxStream random(philox_key(1, 0), 0);
  std::generate(x.begin(), x.end(), [&] { return random.uniform() * 2 - 1; });
  StepValues values;
  int64_t step = 0;
  // Forward, and twice that for the gradients, of three maps per expert that a token uses.
  const double flops = 3.0 * 2 * kTokens * 3 * kWidth * kInner * kUsed;
  measure(state, {.samples = kTokens, .flops = flops, .threads = threads}, [&] {
    values.set(1e-4f, ++step, 1);
    std::vector<const void*> inputs;
    for (const std::string& name : plan->input_names())
      if (const auto own = step_input_of(name))
        inputs.push_back(values.address(*own));
      else
        inputs.push_back(x.data());
    plan->run(inputs.data());
  });
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  using namespace harmonics::engine::bench;
  return run_benchmarks(argc, argv, [] {
    for (const int threads : {1, 2})
      for (const auto& [name, network] :
           {std::pair<const char*, Network>{"dense", dense_network}, {"experts", experts_network}})
        benchmark::RegisterBenchmark(
            fmt::format("{}/threads:{}", name, threads).c_str(),
            [network = network, threads](benchmark::State& state) { measure_step(state, network, threads); })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
  });
}
