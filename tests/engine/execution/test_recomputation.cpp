// Recomputation of parts of transformer blocks: bitwise equal gradients, memory, and the budget.
#include <catch2/catch.hpp>

#include "engine/passes/recomputation.hpp"
#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Transformer blocks: attention and a gated feed-forward network, each after a norm, with dropout.
TrainingStep blocks_step(int blocks) {
  TrainingStep step;
  Tracer tracer("blocks");
  const int64_t batch = 2, tokens = 24, heads = 2, width = 16, inner = 48;
  HTensor h = tracer.input("x", {DType::F32, {batch, tokens, width}});
  const HTensor counter = tracer.input("counter", {DType::I64, {2}});
  std::vector<HTensor> parameters;
  const auto weight = [&](const Shape& shape) {
    const std::string name = "w" + std::to_string(parameters.size());
    parameters.push_back(tracer.parameter(name, {DType::F32, shape}));
    step.numbers[name] = noise(shape, static_cast<uint32_t>(parameters.size()), 0.3f);
    return parameters.back();
  };
  const auto norm = [&](const HTensor& x) { return apply("rms_norm", {}, {x, weight({width})}).at(0); };
  for (int i = 0; i < blocks; ++i) {
    const TraceScope scope("block" + std::to_string(i));
    const HTensor a = norm(h);
    const auto split = [&](const HTensor& x) { return reshape(x, {batch, tokens, heads, width / heads}); };
    const HTensor q =
        apply("rope", AttributeMap().set("positions_first", true), {split(linear(a, weight({width, width})))}).at(0);
    const HTensor k =
        apply("rope", AttributeMap().set("positions_first", true), {split(linear(a, weight({width, width})))}).at(0);
    const HTensor v = split(linear(a, weight({width, width})));
    const HTensor seen =
        apply("attention", AttributeMap().set("causal", true).set("positions_first", true), {q, k, v}).at(0);
    HTensor y = linear(reshape(seen, {batch, tokens, width}), weight({width, width}));
    const HTensor random =
        apply("random_uniform",
              AttributeMap().set("stream", int64_t{i}).set("shape", std::vector<int64_t>{batch, tokens, width}),
              {counter})
            .at(0);
    y = apply("dropout", AttributeMap().set("rate", 0.2), {y, random}).at(0);
    h = h + y;
    const HTensor b = norm(h);
    const HTensor gate = apply("silu", {}, {linear(b, weight({inner, width}))}).at(0);
    h = h + linear(gate * linear(b, weight({inner, width})), weight({width, inner}));
  }
  const HTensor loss = reduce_mean(h * h, {0, 1, 2});
  const std::vector<HTensor> gradients = gradient(tracer, loss, parameters);
  tracer.output("loss", loss);
  for (size_t i = 0; i < gradients.size(); ++i) tracer.output("gradient" + std::to_string(i), gradients[i]);
  step.numbers["x"] = noise({batch, tokens, width}, 99, 1.0f);
  step.numbers["counter"] = HTensor::from<int64_t>({2}, {5, 7});
  step.program = tracer.take();
  return step;
}

uint64_t arena(const TrainingStep& step, const CompileOptions& options) {
  MapBinding binding(step.numbers);
  const auto executor = make_sequential_executor();
  return compile(step.program, &binding, *executor, options)->memory().arena_bytes;
}

}  // namespace

TEST_CASE("recomputation by name keeps the gradients' bits and lowers the memory in the order of its presets") {
  const TrainingStep step = blocks_step(6);
  const auto executor = make_sequential_executor();
  for (const char* device : {"reference", "cpu"}) {
    const auto with = [&](const std::string& what) {
      CompileOptions options = on(device);
      options.recomputation = what;
      return options;
    };
    const auto expected = run_compiled(step.program, step.numbers, *executor, with("none"));
    std::map<std::string, uint64_t> bytes{{"none", arena(step, with("none"))}};
    for (const std::string& name : recomputation_presets()) {
      INFO(device << ": " << name);
      bytes[name] = arena(step, with(name));
      CHECK(bytes[name] < bytes["none"]);
      CHECK(same_bits(expected, run_compiled(step.program, step.numbers, *executor, with(name))));
    }
    INFO(device);
    CHECK(bytes["attention"] < bytes["qkv"]);
    CHECK(bytes["ffn"] < bytes["swiglu"]);
    CHECK(bytes["block"] < bytes["ffn"]);
    CHECK(bytes["block"] < bytes["attention"]);
    CHECK(bytes["block"] < bytes["none"] / 2);
    CHECK(arena(step, with("rmsnorm,ffn")) < bytes["ffn"]);
  }
}

TEST_CASE("recomputation within a budget: the plan keeps it, with the same bits") {
  const TrainingStep step = blocks_step(6);
  const auto executor = make_sequential_executor();
  const CompileOptions plain = on("cpu");
  CompileOptions block = plain;
  block.recomputation = "block";
  const uint64_t most = arena(step, plain), least = arena(step, block);
  uint64_t before = most + 1;
  for (const uint64_t budget : {most, (most + least) / 2, least + (most - least) / 8}) {
    CompileOptions kept = plain;
    kept.recomputation = "auto=" + std::to_string(budget);
    const uint64_t bytes = arena(step, kept);
    INFO("budget " << budget << ", of " << most << " bytes and " << least << " with all blocks: " << bytes);
    CHECK(bytes <= budget);
    CHECK(bytes < before);
    before = bytes;
    CHECK(same_bits(run_compiled(step.program, step.numbers, *executor, plain),
                    run_compiled(step.program, step.numbers, *executor, kept)));
  }
  CompileOptions impossible = plain;
  impossible.recomputation = "auto=1K";
  CHECK_THROWS_WITH(arena(step, impossible), Catch::Contains("recompute auto allows 1024"));
  impossible.recomputation = "auto";  // half of the machine's memory
  CHECK(arena(step, impossible) == most);
}

TEST_CASE("what to recompute: names, patterns and budgets") {
  CHECK(parse_recomputation("none").none());
  CHECK(parse_recomputation("").none());
  CHECK(parse_recomputation("attention").parts == (parts::attention | parts::qkv));
  CHECK(parse_recomputation("recompute_ffn,rmsnorm").parts == (parts::ffn | parts::activation | parts::norm));
  CHECK(parse_recomputation("*/mlp").scopes == std::vector<std::string>{"*/mlp"});
  CHECK(parse_recomputation("auto=2M").budget == 2 << 20);
  CHECK(parse_recomputation("auto").automatic);
  CHECK_THROWS_WITH(parse_recomputation("atention"), Catch::Contains("there is nothing named 'atention'"));
  CHECK_THROWS_WITH(parse_recomputation("auto=0"), Catch::Contains("a budget in bytes, not '0'"));
  CHECK_THROWS_WITH(parse_recomputation("auto,block"), Catch::Contains("not both"));
}
