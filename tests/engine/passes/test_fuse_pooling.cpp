// Fusion of convolution, relu and max pooling, forward and backward.
#include <catch2/catch.hpp>
#include <set>

#include "engine/passes/pass.hpp"
#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Returns loss and gradients of two blocks of convolution, relu and pooling on a 13 x 12 image. `watched`: the result
// of the first convolution is also an output.
TrainingStep blocks(bool watched = false, int64_t pool_stride = 2) {
  TrainingStep step;
  Tracer tracer("blocks");
  HTensor h = tracer.input("x", {DType::F32, {3, 2, 13, 12}});
  step.numbers["x"] = noise({3, 2, 13, 12}, 7, 1);
  const std::vector<int64_t> stride{pool_stride, pool_stride}, pad{1, 1};
  std::vector<HTensor> parameters;
  int64_t channels = 2;
  for (const int64_t outputs : {5, 9}) {
    const std::string name = "conv" + std::to_string(outputs);
    const TraceScope scope(name);
    for (const Shape& shape : {Shape{outputs, channels, 3, 3}, Shape{outputs}}) {
      parameters.push_back(tracer.parameter(name + std::to_string(shape.rank()), {DType::F32, shape}));
      step.numbers[name + std::to_string(shape.rank())] = noise(shape, static_cast<uint32_t>(outputs), 0.5f);
    }
    const HTensor y = call1("conv", {h, parameters[parameters.size() - 2], parameters.back()},
                            Attributes().set("padding_low", pad).set("padding_high", pad));
    h = call1("relu", {y});
    if (watched && outputs == 5) tracer.output("edges", h);
    h = call("max_pool", {h}, Attributes().set("kernel", std::vector<int64_t>{2, 2}).set("strides", stride))[0];
    channels = outputs;
  }
  const HTensor loss = reduce_sum(h * h, {0, 1, 2, 3});
  tracer.output("loss", loss);
  const std::vector<HTensor> gradients = gradient(tracer, loss, parameters);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output("gradient" + std::to_string(i), gradients[i]);
  step.program = tracer.take();
  return step;
}

std::multiset<std::string> calls_of(const Program& program) {
  std::multiset<std::string> names;
  for (const Node& node : program.nodes)
    if (node.op == Op::call) names.insert(node.callee);
  return names;
}

Program prepared(const Program& program) {
  const auto always = [](const auto&...) { return true; };
  return dce(cse(simplify(fuse_calls(dce(cse(simplify(program))), always))));
}

}  // namespace

TEST_CASE("fuse_pooling: stores neither the convolution's result nor its dense gradient") {
  const TrainingStep step = blocks();
  const Program fused = fuse_pooling(
      inline_calls(prepared(step.program), [](const Program&, const Node& node) { return node.callee != "relu"; }),
      [](const auto&...) { return true; });
  CHECK(calls_of(fused) == std::multiset<std::string>{"conv_max_pool", "conv_max_pool", "conv_max_pool_grad_input",
                                                      "conv_max_pool_grad_weight", "conv_max_pool_grad_weight"});
  const Values expected = interpret(step.program, step.numbers), values = interpret(fused, step.numbers);
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const bool bias = i == 2 || i == 4;  // summed in a different order
    for (int64_t k = 0; k < values[i].size(); ++k)
      if (bias)
        CHECK(values[i].data<float>()[k] == Approx(expected[i].data<float>()[k]).epsilon(1e-5));
      else
        CHECK(values[i].data<float>()[k] == expected[i].data<float>()[k]);
  }
}

TEST_CASE("fuse_pooling: not if the convolution has other readers or the device declines") {
  const auto refuse = [](const std::string& callee, const auto&...) { return callee == "conv_max_pool_grad_weight"; };
  const std::multiset<std::string> watched =
      calls_of(fuse_pooling(prepared(blocks(true).program), [](const auto&...) { return true; }));
  CHECK(watched.count("conv") == 1);
  CHECK(watched.count("conv_max_pool") == 1);
  const std::multiset<std::string> refused = calls_of(fuse_pooling(prepared(blocks().program), refuse));
  CHECK(refused.count("conv") == 2);
  CHECK(refused.count("max_pool") == 2);
  CHECK(refused.count("conv_grad_input") == 1);
  CHECK(refused.count("conv_max_pool_grad_weight") == 2);
}

TEST_CASE("fuse_pooling: convolutions that may round their operands are joined too") {
  Program program = prepared(blocks().program);
  for (Node& node : program.nodes) {
    if (node.op != Op::call || !node.callee.starts_with("conv")) continue;
    NodeScope scope = program.scope_of(node);
    scope.rounding = Rounding::fp16;
    node.scope = program.scope_index(scope);
  }
  const Program fused = fuse_pooling(program, [](const auto&...) { return true; });
  CHECK(calls_of(fused).count("conv_max_pool") == 2);
  for (const Node& node : fused.nodes)
    if (node.op == Op::call && node.callee.starts_with("conv_max_pool"))
      CHECK(fused.scope_of(node).rounding == Rounding::fp16);
}

TEST_CASE("fuse_pooling: the CPU agrees with the interpreter for any number of threads") {
  for (const int64_t pool_stride : {1, 2}) {
    const TrainingStep step = blocks(false, pool_stride);
    const Values expected = interpret(step.program, step.numbers);
    const auto one = make_sequential_executor(), two = make_team_executor(2);
    const Values values = run_compiled(step.program, step.numbers, *one, on("cpu"));
    CHECK(same_bits(run_compiled(step.program, step.numbers, *two, on("cpu")), values));
    for (size_t i = 0; i < values.size(); ++i)
      for (int64_t k = 0; k < values[i].size(); ++k)
        CHECK(values[i].data<float>()[k] == Approx(expected[i].data<float>()[k]).epsilon(1e-4).margin(1e-3));
  }
}
