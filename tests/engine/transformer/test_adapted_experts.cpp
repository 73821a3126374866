// Adapters of experts and routers, and of models whose hf_mapping names the modules.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <set>

#include <harmonics/ops.hpp>

#include "engine/model/safetensors.hpp"
#include "engine/passes/observe.hpp"
#include "engine/program/interpret.hpp"
#include "engine/training/lower.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "engine/transformer/spec_trace.hpp"
#include "tests/engine/language/small_llama.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr int64_t kRuns = 2, kLength = 6;

std::map<std::string, std::string> small_sizes(const std::string& name) {
  std::map<std::string, std::string> set{{"vocab_size", "19"},        {"hidden_size", "16"},
                                         {"num_layers", "2"},         {"num_query_heads", "4"},
                                         {"intermediate_size", "12"}, {"max_position_embeddings", "32"}};
  set["initializer_range"] = "0.3";  // the default is too small to distinguish models
  if (name == "GPT_NeoX" || name == "Phi") set["partial_rotary_factor"] = "0.5";
  if (name == "Llama3" || name == "Phi") set["num_kv_heads"] = "2";
  if (name == "Mixtral" || name == "Qwen3MoE")
    set.insert({{"num_kv_heads", "2"}, {"num_experts", "4"}, {"num_experts_per_tok", "2"}});
  if (name == "Qwen3MoE") set.insert({{"moe_intermediate_size", "12"}, {"head_dim", "4"}});
  return set;
}

// Returns a library model with random weights and adapters with an effect.
Model small_described(const std::string& name, const std::string& lora, std::vector<AdapterFile> adapters = {}) {
  NdslOptions options;
  options.set = small_sizes(name);
  options.adapters = std::move(adapters);
  if (!lora.empty()) options.lora = parse_lora(lora);
  Model model = open_ndsl(name, options).model;
  uint32_t seed = 70;
  if (!model.adapter) return model;
  for (const TrainedPair& pair : model.adapter->pairs)
    for (const std::string& matrix : {pair.a, pair.b})
      model.parameters->assign(matrix, small_random(model.parameters->find(matrix)->type.shape, seed++, 0.4f));
  return model;
}

HTensor few_tokens(int64_t vocabulary, uint32_t seed) {
  HTensor ids(DType::I32, Shape{kRuns, kLength});
  const std::vector<int32_t> some = some_tokens(kRuns * kLength, vocabulary, seed);
  std::copy(some.begin(), some.end(), ids.mutable_data<int32_t>());
  return ids;
}

HTensor described_scores(const Model& model) {
  EntrySizes sizes{kRuns, kLength, 1};
  const Program program =
      observe(model.trace(model.entry("forward"), sizes), [](const std::string& name) { return name == "scores"; });
  std::map<std::string, HTensor> leaves{{"tokens", few_tokens(model.vocabulary, 3)}};
  for (const Node* leaf : program.leaves(Op::parameter)) leaves[leaf->callee] = model.parameters->tensor(leaf->callee);
  return interpret(program, leaves).at(0);
}

double apart(const HTensor& l, const HTensor& r) {
  REQUIRE(l.shape() == r.shape());
  double worst = 0;
  for (int64_t i = 0; i < l.size(); ++i)
    worst =
        std::max(worst, std::abs(static_cast<double>(l.data<float>()[i]) - static_cast<double>(r.data<float>()[i])));
  return worst;
}

std::string adapter_folder(const std::string& name) {
  const std::string path = (std::filesystem::temp_directory_path() / ("harmonics_" + name)).string();
  std::filesystem::remove_all(path);
  return path;
}

void write_described(const Model& model, const std::string& folder) {
  write_adapter(
      *model.adapter, [&](const std::string& name) { return model.parameters->tensor(name); }, folder);
}

}  // namespace

TEST_CASE("lora: gradients of adapted experts are their finite differences") {
  TrainedAdapter adapter;
  const auto pair = [&](const std::string& key, int64_t width, int64_t rows, const std::string& group) {
    TrainedPair p{key, {}, "", key + ".A", key + ".B", "", ""};
    p.rank = 2, p.width = width, p.rows = p.whole = rows, p.factor = 1.5, p.group = group, p.experts = 3;
    adapter.pairs.push_back(p);
  };
  pair("gate", 3, 4, "x");
  pair("up", 3, 4, "x");
  pair("down", 4, 5, "inner");
  Tracer tracer("experts");
  const AdaptedWeights none;
  LowRankTerms terms(none, &adapter, tracer, true);
  std::map<std::string, HTensor> leaves;
  uint32_t seed = 3;
  const auto leaf = [&](const std::string& name, const Shape& shape) {
    leaves[name] = cast(small_random(shape, seed++, 0.7f), DType::F64);
    return tracer.parameter(name, {DType::F64, shape});
  };
  // The second expert has no rows.
  const HTensor offsets = tracer.input("offsets", {DType::I32, Shape{4}});
  leaves["offsets"] = cast(HTensor::from(Shape{4}, std::vector<float>{0, 3, 3, 5}), DType::I32);
  const HTensor x = leaf("x", {5, 3});
  const auto mapped = [&](const std::string& key, const HTensor& rows, const Shape& weight) {
    const HTensor y = apply("grouped_linear", {}, {rows, offsets, leaf(key, weight)}).at(0);
    return terms.added_by_experts(y, rows, offsets, key, 3);
  };
  const HTensor gate = mapped("gate", x, {3, 4, 3}), up = mapped("up", x, {3, 4, 3});
  const HTensor down = mapped("down", sin(gate) * up, {3, 5, 4});
  tracer.output("loss", reduce_sum(down * down, {0, 1}));
  const Program forward = tracer.take();
  std::vector<std::string> names{"x"};
  for (const TrainedPair& p : adapter.pairs) {
    leaves[p.a] = cast(small_random(Shape{3, 2, p.width}, seed++, 0.7f), DType::F64);
    leaves[p.b] = cast(small_random(Shape{3, p.rows, 2}, seed++, 0.7f), DType::F64);
    names.insert(names.end(), {p.a, p.b});
  }
  const auto loss = [&] { return *interpret(forward, leaves).at(0).data<double>(); };
  const Program both = differentiate(forward, "loss", names);
  const Values results = interpret(both, leaves);
  size_t found = 0;
  for (size_t i = 0; i < both.outputs.size(); ++i)
    for (const std::string& name : names) {
      if (both.outputs[i].name != gradient_output(name)) continue;
      ++found;
      const HTensor gradient = results[i];
      for (int64_t e = 0; e < gradient.size(); ++e) {
        INFO(name << " " << e);
        const HTensor before = leaves.at(name);
        const auto at = [&](double step) {
          HTensor moved = before + 0.0;
          moved.mutable_data<double>()[e] += step;
          leaves[name] = moved;
          return loss();
        };
        const double difference = (at(1e-5) - at(-1e-5)) / 2e-5;
        leaves[name] = before;
        CHECK(gradient.data<double>()[e] == Approx(difference).epsilon(1e-6).margin(1e-7));
      }
    }
  CHECK(found == names.size());
}

TEST_CASE("lora: experts and routers are targets of their own, and only they are trained") {
  const Model model = small_described("Qwen3MoE", "rank=3, targets=router+experts+embed_tokens");
  std::set<std::string> parameters, expected;
  for (const int layer : {0, 1})
    for (const char* weight : {"ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"})
      for (const char* matrix : {"A", "B"})
        expected.insert("blk." + std::to_string(layer) + "." + weight + ".weight.lora_" + matrix);
  expected.insert({"token_embd.weight.lora_A", "token_embd.weight.lora_B"});
  StepOptions options;
  options.optimizer = parse_optimizer("adamw");
  options.device.device = "cpu";
  options.batch = kRuns;
  options.tokens = kLength;
  for (const TrainedParameter& p : lower(model, options).trained) parameters.insert(p.name);
  CHECK(parameters == expected);
  CHECK(model.parameters->find("blk.0.ffn_up_exps.weight.lora_A")->type.shape == Shape{4, 3, 16});
  CHECK(model.parameters->find("blk.0.ffn_down_exps.weight.lora_B")->type.shape == Shape{4, 16, 3});
  const Model linear = small_described("Qwen3MoE", "rank=3");
  for (const TrainedPair& pair : linear.adapter->pairs) CHECK(pair.key.find("attn_") != std::string::npos);
  CHECK_THAT(message_of([] { small_described("Qwen3MoE", "targets=experts, dora"); }),
             Catch::Contains("leave out the experts"));
}

TEST_CASE("lora: adapters of described models have the modules of hf_mapping, and are read with the same scores") {
  struct Row {
    const char *model, *lora, *tensor;
  };
  for (const Row& row :
       {Row{"Qwen3MoE", "rank=3, targets=experts+router", "layers.1.mlp.experts.3.up_proj.lora_A"},
        Row{"Mixtral", "rank=2, targets=experts+q_proj+router", "layers.0.block_sparse_moe.experts.2.w2.lora_B"},
        Row{"GPT2", "rank=2, targets=q_proj+v_proj+c_fc+embed_tokens", "h.1.attn.c_attn.lora_B"},
        Row{"GPT2", "rank=2, targets=c_attn, dora", "h.1.attn.c_attn.lora_magnitude_vector"},
        Row{"GPT_NeoX", "rank=2, targets=query_key_value", "attention.query_key_value.lora_B"},
        Row{"Phi", "rank=2, targets=fc1+dense+k_proj, rslora", "self_attn.dense.lora_A"},
        Row{"Llama3", "rank=2, targets=all-linear", "self_attn.k_proj.lora_A"}}) {
    INFO(row.model << " " << row.lora);
    const Model trained = small_described(row.model, row.lora);
    const std::string folder = adapter_folder("described_adapter");
    write_described(trained, folder);
    bool found = false;
    for (const auto& [name, tensor] : read_safetensors(folder + "/adapter_model.safetensors").tensors)
      found |= name.find(row.tensor) != std::string::npos;
    CHECK(found);
    const HTensor scores = described_scores(trained);
    CHECK(apart(described_scores(small_described(row.model, "", {{folder, 1}})), scores) < 2e-5);
    CHECK(apart(described_scores(small_described(row.model, "")), scores) > 1e-2);
    std::filesystem::remove_all(folder);
  }
}

TEST_CASE("lora: rows of a module lie by head where a model says so") {
  // Two heads with two rows each of q, k and v; selects the rows of k.
  const WeightModule k{"query_key_value", 4, 12, 2};
  std::vector<int64_t> places;
  for (int64_t row = 0; row < 4; ++row) places.push_back(k.place_of(row, 4));
  CHECK(places == std::vector<int64_t>{2, 3, 8, 9});
  CHECK(WeightModule{"c_attn", 4, 12, 0}.place_of(1, 4) == 5);
  // The same with all parts in one weight, one after the other.
  const WeightModule fused{"query_key_value", 0, 12, 2, 3};
  places.clear();
  for (int64_t row = 0; row < 12; ++row) places.push_back(fused.place_of(row, 12));
  CHECK(places == std::vector<int64_t>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11});
}

TEST_CASE("lora: experts that a file leaves out are not changed, and those of less rank are filled up") {
  const Model trained = small_described("Qwen3MoE", "rank=3, targets=experts");
  const std::string folder = adapter_folder("some_experts");
  write_described(trained, folder);
  TensorFile file = read_safetensors(folder + "/adapter_model.safetensors");
  TensorFile fewer;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.find("layers.0.mlp.experts.1.") != std::string::npos) continue;
    HTensor kept = tensor + 0.0;
    if (name.find("layers.0.mlp.experts.2.up_proj") != std::string::npos)  // rank 2
      kept = slice_axis(kept, name.find("lora_A") != std::string::npos ? 0 : 1, 0, 2);
    fewer.tensors[name] = kept;
  }
  save_safetensors(fewer, folder + "/adapter_model.safetensors");
  const auto zero = [&](const std::string& parameter, int64_t expert, int64_t column) {
    HTensor all = trained.parameters->tensor(parameter) + 0.0;
    const int64_t rows = all.shape()[1], rank = all.shape()[2];
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = column; c < rank; ++c) all.mutable_data<float>()[(expert * rows + r) * rank + c] = 0;
    trained.parameters->assign(parameter, all);
  };
  for (const char* weight : {"gate", "up", "down"})
    zero("blk.0.ffn_" + std::string(weight) + "_exps.weight.lora_B", 1, 0);
  // The pair of rank 2 is scaled by alpha / 2.
  zero("blk.0.ffn_up_exps.weight.lora_B", 2, 2);
  HTensor b = trained.parameters->tensor("blk.0.ffn_up_exps.weight.lora_B") + 0.0;
  const int64_t each = b.size() / 4;
  for (int64_t i = 0; i < each; ++i) b.mutable_data<float>()[2 * each + i] *= 1.5f;
  trained.parameters->assign("blk.0.ffn_up_exps.weight.lora_B", b);
  CHECK(apart(described_scores(small_described("Qwen3MoE", "", {{folder, 1}})), described_scores(trained)) < 2e-5);

  fewer.tensors["base_model.model.model.layers.0.mlp.experts.9.up_proj.lora_A.weight"] =
      fewer.tensors.at("base_model.model.model.layers.0.mlp.experts.0.up_proj.lora_A.weight");
  fewer.tensors["base_model.model.model.layers.0.mlp.experts.9.up_proj.lora_B.weight"] =
      fewer.tensors.at("base_model.model.model.layers.0.mlp.experts.0.up_proj.lora_B.weight");
  save_safetensors(fewer, folder + "/adapter_model.safetensors");
  CHECK_THAT(message_of([&] { small_described("Qwen3MoE", "", {{folder, 1}}); }), Catch::Contains("the expert 9 of 4"));
  CHECK_THAT(message_of([&] { small_described("Llama3", "", {{folder, 1}}); }), Catch::Contains("has none"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("lora: merged weights keep bf16, whose range f16 lacks, and quantised ones become f16") {
  LowRank pair;
  pair.a = small_random(Shape{2, 32}, 2, 0.5f), pair.b = small_random(Shape{4, 2}, 3, 0.5f);
  const HTensor large = cast(small_random(Shape{4, 32}, 1, 1e6f), DType::BF16);
  const HTensor merged = merged_weight(large, false, {&pair});
  REQUIRE(merged.dtype() == DType::BF16);
  const HTensor before = cast(large, DType::F32), after = cast(merged, DType::F32);
  for (int64_t i = 0; i < after.size(); ++i)
    CHECK(after.data<float>()[i] == Approx(before.data<float>()[i]).epsilon(0.01).margin(10));
  CHECK(merged_weight(cast(before, DType::Q8_0), false, {&pair}).dtype() == DType::F16);
  LowRank of_each;
  of_each.a = small_random(Shape{3, 2, 5}, 2, 0.5f), of_each.b = small_random(Shape{3, 4, 2}, 3, 0.5f);
  CHECK(merged_experts(cast(small_random(Shape{3, 4, 5}, 1, 1), DType::BF16), {&of_each}).dtype() == DType::BF16);
}

TEST_CASE("lora: stacks merged with an adapter are the experts merged one by one") {
  const HTensor stack = small_random(Shape{3, 4, 5}, 1, 0.5f);
  LowRank pair;
  pair.a = small_random(Shape{3, 2, 5}, 2, 0.5f), pair.b = small_random(Shape{3, 4, 2}, 3, 0.5f), pair.scale = 1.5;
  const HTensor merged = merged_experts(stack, {&pair});
  REQUIRE(merged.shape() == stack.shape());
  for (int64_t e = 0; e < 3; ++e)
    for (int64_t r = 0; r < 4; ++r)
      for (int64_t c = 0; c < 5; ++c) {
        double sum = static_cast<double>(stack.data<float>()[(e * 4 + r) * 5 + c]);
        for (int64_t k = 0; k < 2; ++k)
          sum += 1.5 * static_cast<double>(pair.b.data<float>()[(e * 4 + r) * 2 + k]) *
                 static_cast<double>(pair.a.data<float>()[(e * 2 + k) * 5 + c]);
        CHECK(static_cast<double>(merged.data<float>()[(e * 4 + r) * 5 + c]) == Approx(sum).epsilon(1e-5).margin(1e-6));
      }
}
