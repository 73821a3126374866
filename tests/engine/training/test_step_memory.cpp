// Values that a training step keeps, by name, and the memory that its plan predicts.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>

#include "engine/flow/compiled_step.hpp"
#include "engine/training/lower.hpp"
#include "engine/training/step_memory.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "tests/engine/language/small_llama.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

NdslOptions tiny_sizes(bool plan_only) {
  NdslOptions options;
  options.set = {
      {"num_layers", "3"},         {"hidden_size", "32"}, {"num_query_heads", "4"},         {"num_kv_heads", "2"},
      {"intermediate_size", "96"}, {"vocab_size", "64"},  {"max_position_embeddings", "64"}};
  options.trainable = true;
  options.plan_only = plan_only;
  return options;
}

StepOptions adamw_step(int64_t batch, int64_t tokens) {
  StepOptions options;
  options.optimizer = parse_optimizer("adamw");
  options.batch = batch;
  options.tokens = tokens;
  return options;
}

std::vector<StepMemory> memory_of(const Model& model, const StepOptions& options,
                                  const std::vector<std::string>& recompute) {
  CompileOptions compile;
  compile.device = "cpu";
  return step_memory(lower(model, options).program, *model.parameters, compile, recompute);
}

uint64_t kept_as(const StepMemory& step, const std::string& layer, const std::string& name) {
  uint64_t bytes = 0;
  for (const KeptValue& value : step.kept)
    if (value.layer == layer && value.name == name) bytes += value.bytes();
  return bytes;
}

}  // namespace

TEST_CASE("step memory: a plan without weights predicts the arena of the step that runs") {
  const StepOptions options = adamw_step(2, 16);
  const Model planned = open_ndsl("Llama3", tiny_sizes(true)).model,
              real = open_ndsl("Llama3", tiny_sizes(false)).model;
  const auto executor = make_sequential_executor();
  for (const char* recompute : {"none", "attention", "block"}) {
    INFO(recompute);
    const StepMemory predicted = memory_of(planned, options, {recompute}).front();
    CompileOptions compile;
    compile.device = "cpu";
    compile.training = true;
    compile.recomputation = recompute;
    compile.poison = true;
    CompiledStep step(lower(real, options), *real.parameters, *executor, compile);
    std::vector<int32_t> tokens(32), targets(32);
    for (size_t i = 0; i < 32; ++i) tokens[i] = static_cast<int32_t>(i % 64), targets[i] = static_cast<int32_t>(i / 2);
    const void* streams[] = {tokens.data(), targets.data()};
    step.set(streams, 1e-3f, 1, 0);
    REQUIRE(step.run_if_finite());
    const auto measured = static_cast<double>(step.executable().memory().arena_bytes);
    CHECK(static_cast<double>(predicted.plan.arena_bytes) == Approx(measured).epsilon(0.01));
    CHECK(predicted.plan.state_bytes == step.executable().memory().state_bytes);
  }
}

TEST_CASE("step memory: values that are kept have their usual names and shapes") {
  const Model model = open_ndsl("Llama3", tiny_sizes(true)).model;
  const auto steps = memory_of(model, adamw_step(2, 16), {"none", "attention", "block"});
  const uint64_t row = 2 * 16 * sizeof(float);  // one number per token
  const StepMemory& all = steps.front();
  CHECK(kept_as(all, "blk.1", "ln1.output") == row * 32);
  CHECK(kept_as(all, "blk.1", "ln2.output") == row * 32);
  CHECK(kept_as(all, "blk.1", "qkv_output") == row * (32 + 2 * 16));
  CHECK(kept_as(all, "blk.1", "attention_out") == row * 32);
  CHECK(kept_as(all, "blk.1", "lse") == row * 4);
  CHECK(kept_as(all, "blk.1", "mlp_up_output") == row * 2 * 96);
  CHECK(kept_as(all, "blk.1", "mlp_down_input") >= row * 96);
  std::set<std::string> inputs;
  for (const KeptValue& value : all.kept) inputs.insert(value.inputs.begin(), value.inputs.end());
  CHECK(inputs.count("qkv_input") == 1);
  CHECK(inputs.count("mlp_up_input") == 1);
  CHECK(kept_as(steps[1], "blk.1", "qkv_output") == 0);
  CHECK(kept_as(steps[1], "blk.1", "attention_out") == 0);
  CHECK(kept_as(steps[1], "blk.1", "lse") == row * 4);
  CHECK(kept_as(steps[2], "blk.1", "mlp_up_output") == 0);
  CHECK(steps[1].kept_bytes() < all.kept_bytes());
  CHECK(steps[2].kept_bytes() < steps[1].kept_bytes());
  CHECK(steps[2].plan.arena_bytes < all.plan.arena_bytes);
}

TEST_CASE("step memory: layers of width 4,096 are planned without their memory") {
  // 2 sequences of 2,048 tokens. One number per token takes 8,192 bytes in 16 bits: q, k and v are 3 x 4,096 of them.
  NdslOptions options;
  options.set = {
      {"num_layers", "2"},   {"hidden_size", "4096"},        {"num_query_heads", "32"},          {"num_kv_heads", "32"},
      {"vocab_size", "256"}, {"intermediate_size", "14336"}, {"max_position_embeddings", "2048"}};
  options.trainable = options.plan_only = true;
  const Model model = open_ndsl("Llama2", options).model;
  const auto steps = memory_of(model, adamw_step(2, 2048), {"none", "attention", "swiglu", "block"});
  const auto millions = [](const StepMemory& step) {
    return static_cast<double>(step.bytes_per_layer_in_16_bits()) / 1e6;
  };
  CHECK(millions(steps[0]) == Approx(600).epsilon(0.1));
  CHECK(millions(steps[1]) < millions(steps[0]) - 130);
  CHECK(millions(steps[2]) < millions(steps[0]) - 100);  // the input of the last map
  CHECK(millions(steps[3]) < 165);
}

TEST_CASE("step memory: a scope is a layer and an operation") {
  using Parts = std::pair<std::string, std::string>;
  CHECK(layer_and_operation("blk.3.QKV") == Parts("blk.3", "QKV"));
  CHECK(layer_and_operation("tokens.scores.blk.12.MLPUp") == Parts("tokens.scores.blk.12", "MLPUp"));
  CHECK(layer_and_operation("blk.3") == Parts("blk.3", ""));
  CHECK(layer_and_operation("hidden.output") == Parts("", "hidden.output"));
}

TEST_CASE("step memory: a model file with weights of block types is planned") {
  const Model model = engine::testing::small_llama();
  EntrySizes sizes;
  sizes.batch = 2, sizes.tokens = 5, sizes.training = true;
  const Model planned = planned_model(model, sizes);
  const StepMemory step = memory_of(planned, adamw_step(2, 5), {"none"}).front();
  CHECK(step.kept_bytes() > 0);
  CHECK(step.bytes_per_layer() > 0);
  CHECK(std::any_of(step.kept.begin(), step.kept.end(), [](const KeptValue& v) { return v.layer == "blk.0"; }));
}
