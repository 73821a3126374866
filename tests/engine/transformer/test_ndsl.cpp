// Models in `.ndsl` files: blocks, errors, sizes, weights in both directions.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "dsl/ndsl/print.hpp"
#include "engine/base/read_file.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/ndsl_mapping.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

std::string ndsl_text(const std::string& name) {
  return read_file(std::string(HARMONICS_SOURCE_DIR) + "/tests/dsl/ndsl/" + name + ".ndsl", 1 << 20);
}

CompiledNdsl compiled(const std::string& text, const std::map<std::string, std::string>& set = {}) {
  NdslCompileOptions options;
  options.set = set;
  return compile_ndsl(ndsl::parse_model_file("a.ndsl", text, "", builtin_ndsl), options);
}

std::string refusal(const std::string& text) {
  return message_of([&] {
    const CompiledNdsl model = compiled(text);
    folder_tensors(model);
    check_ndsl(model);
  });
}

// Returns a model of two layers with this block.
std::string around(const std::string& block, const std::string& rest = "", const std::string& variant = "dense") {
  return "name: Small\narchitecture:\n  variant: " + variant + "\n" + block +
         "\nconfig:\n  vocab_size: 32\n  hidden_size: 16\n  num_layers: 2\n  num_query_heads: 4\n"
         "  num_kv_heads: 2\n  intermediate_size: 24\n  max_position_embeddings: 64\n" +
         rest;
}

const std::string kShort = "  block: [{op: RMSNorm, name: ln1}, {op: CausalSelfAttention}, {op: SwiGLU_FFN}]";

using Ops = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Folder {
  std::filesystem::path path;
  explicit Folder(const std::string& name) : path(std::filesystem::temp_directory_path() / ("harmonics_" + name)) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
    return (path / name).string();
  }
};

bool equal_bits(const HTensor& a, const HTensor& b) {
  return type_of(a) == type_of(b) && std::memcmp(a.bytes(), b.bytes(), type_of(a).bytes()) == 0;
}

}  // namespace

TEST_CASE("ndsl: the printed models give the printed blocks") {
  const Ops dense{"LN1", "QKV", "RoPE", "Attention", "AttnOut", "ResidualLN2", "MLPUp", "SwiGLU", "MLPDown"};
  Ops normed = dense;
  normed.insert(normed.begin() + 2, "QKNorm");
  const CompiledNdsl llama = compiled(ndsl_text("Llama2"));
  REQUIRE(llama.layers.size() == 32);
  for (const BlockSpec& block : llama.layers) CHECK(block == BlockSpec{"dense", dense, false, true});
  CHECK(llama.parameters() == 6'738'415'616);
  const CompiledNdsl neox = compiled(ndsl_text("GPT_NeoX"));
  CHECK(neox.layers.at(0) ==
        BlockSpec{"parallel",
                  {"LN1", "QKV", "RoPE", "Attention", "AttnOut", "LN2", "MLPUp", "SwiGLU", "MLPDown", "ResidualAdd"},
                  false,
                  false});
  const CompiledNdsl qwen = compiled(ndsl_text("Qwen3MoE"));
  CHECK(qwen.layers.at(23) == BlockSpec{"moe",
                                        {"LN1", "QKV", "QKNorm", "RoPE", "Attention", "AttnOut", "ResidualLN2",
                                         "Router", "Experts", "Combine"},
                                        true,
                                        false});
  const CompiledNdsl custom = compiled(ndsl_text("MyCustomModel"));
  CHECK(custom.layers.at(0) == BlockSpec{"dense", normed, true, true});
  const CompiledNdsl three = compiled(around(kShort));
  CHECK(three.layers.at(1) == BlockSpec{"dense", dense, false, true});
}

TEST_CASE("ndsl: the short form computes what the long one does") {
  const CompiledNdsl brief = compiled(around(kShort));
  const CompiledNdsl full = compiled(
      around("  block:\n    - {op: RMSNorm, name: ln1}\n    - CausalSelfAttention\n    - {op: ResidualAdd, "
             "fused_with_next: ln2}\n"
             "    - {op: RMSNorm, name: ln2, fused_with_residual: true}\n    - SwiGLU_FFN\n    - ResidualAdd"));
  REQUIRE(brief.tensors.size() == full.tensors.size());
  for (size_t i = 0; i < brief.tensors.size(); ++i) CHECK(brief.tensors[i].name == full.tensors[i].name);
  REQUIRE(brief.spec.forward.size() == full.spec.forward.size());
  for (size_t i = 0; i < brief.spec.forward.size(); ++i)
    CHECK(brief.spec.forward[i].steps.size() == full.spec.forward[i].steps.size());
}

TEST_CASE("ndsl: an operation's settings are above the model's, those of the user above all") {
  const std::string text = around(
      "  block: [{op: RMSNorm, name: ln1, config: {eps: 1e-3}}, {op: CausalSelfAttention}, {op: MoE_FFN, config: "
      "{num_experts: 4, top_k: 1}}]",
      "  num_experts: 8\n  num_experts_per_tok: 2\n  moe_intermediate_size: 12\n  rms_norm_eps: 1e-6\n", "moe");
  const CompiledNdsl model = compiled(text);
  CHECK(model.find("blk.0.ffn_gate_exps.weight")->shape == Shape{4, 12, 16});
  const specs::Step& layer = model.spec.forward.at(1);
  CHECK(std::get<double>(layer.steps.at(0).fields.at("epsilon")) == 1e-3);
  bool found = false;
  for (const specs::Step& step : layer.steps) {
    if (step.op != "Experts") continue;
    found = true;
    CHECK(std::get<int64_t>(step.fields.at("used")) == 1);
  }
  CHECK(found);
  CHECK(compiled(text, {{"num_experts", "2"}}).find("blk.0.ffn_gate_exps.weight")->shape == Shape{2, 12, 16});
}

TEST_CASE("ndsl: decoder_sparse_step and mlp_only_layers say which layers have experts") {
  const std::string block = "  block: [{op: RMSNorm}, {op: CausalSelfAttention}, {op: MoE_FFN}]";
  const std::string sizes = "  num_experts: 4\n  num_experts_per_tok: 2\n";
  const CompiledNdsl every = compiled(around(block, sizes + "  decoder_sparse_step: 2\n", "moe"));
  CHECK(every.layers.at(0).variant == "dense");
  CHECK(every.layers.at(0).forward_ops.back() == "MLPDown");
  CHECK(every.layers.at(1).variant == "moe");
  CHECK(every.layers.at(1).forward_ops.back() == "Combine");
  const CompiledNdsl but = compiled(around(block, sizes + "  mlp_only_layers: [1]\n", "moe"));
  CHECK(but.layers.at(0).variant == "moe");
  CHECK(but.layers.at(1).variant == "dense");
}

TEST_CASE("ndsl: experts have a bias of their router and shared experts where settings say so") {
  const std::string block = "  block: [RMSNorm, CausalSelfAttention, MoE_FFN]",
                    sizes = "  num_experts: 4\n  num_experts_per_tok: 2\n  moe_intermediate_size: 12\n";
  const CompiledNdsl model =
      compiled(around(block,
                      sizes + "  num_shared_experts: 2\n  use_shared_expert_gate: true\n  scoring_func: sigmoid\n"
                              "  use_router_bias: true\n  routed_scaling_factor: 2.5\n  first_k_dense_replace: 1\n",
                      "moe"));
  const Ops attention{"LN1", "QKV", "RoPE", "Attention", "AttnOut", "ResidualLN2"};
  const auto behind = [&](Ops ops) {
    ops.insert(ops.begin(), attention.begin(), attention.end());
    return ops;
  };
  CHECK(model.layers.at(0).forward_ops == behind({"MLPUp", "SwiGLU", "MLPDown"}));
  CHECK(model.layers.at(1).forward_ops == behind({"Router", "Experts", "SharedExperts", "Combine"}));
  CHECK(model.find("blk.1.ffn_up_shexp.weight")->shape == Shape{24, 16});
  CHECK(model.find("blk.1.ffn_gate_inp_shexp.weight")->shape == Shape{1, 16});
  CHECK(model.find("blk.1.exp_probs_b.bias")->shape == Shape{4});
  CHECK_FALSE(model.find("blk.0.exp_probs_b.bias"));
  check_ndsl(model);
  CHECK(compiled(around(block, sizes + "  shared_expert_intermediate_size: 7\n", "moe"))
            .find("blk.0.ffn_down_shexp.weight")
            ->shape == Shape{16, 7});
  CHECK(has(refusal(around(block, sizes + "  scoring_func: softplus\n", "moe")), "there is no scoring 'softplus'"));
  CHECK(has(refusal(around(kShort, "  use_pooler: true\n")), "a pooler is for encoders"));
}

TEST_CASE("ndsl: n_group and topk_group limit the experts of a token to the best groups") {
  const std::string block = "  block: [RMSNorm, CausalSelfAttention, MoE_FFN]",
                    sizes = "  num_experts: 8\n  num_experts_per_tok: 3\n  moe_intermediate_size: 12\n";
  const auto groups_of = [&](const std::string& settings) {
    const CompiledNdsl model = compiled(around(block, sizes + settings, "moe"));
    for (const specs::Step& layer : model.spec.forward)
      for (const specs::Step& step : layer.steps)
        if (step.op == "Experts" && step.fields.count("groups"))
          return std::pair(std::get<int64_t>(step.fields.at("groups")),
                           std::get<int64_t>(step.fields.at("used_groups")));
    return std::pair<int64_t, int64_t>();
  };
  CHECK(groups_of("  n_group: 4\n  topk_group: 2\n") == std::pair<int64_t, int64_t>(4, 2));
  CHECK(groups_of("  n_group: 4\n  topk_group: 4\n") == std::pair<int64_t, int64_t>());
  CHECK(groups_of("  n_group: 4\n") == std::pair<int64_t, int64_t>());
  const auto refused = [&](const std::string& settings) { return refusal(around(block, sizes + settings, "moe")); };
  CHECK(has(refused("  n_group: 3\n"), "8 experts cannot be divided into 3 groups"));
  CHECK(has(refused("  n_group: 9\n"), "'n_group' is 9; it must be 1 to 8"));
  CHECK(has(refused("  n_group: 4\n  topk_group: 5\n"), "'topk_group' is 5; it must be 1 to 4"));
  CHECK(has(refused("  n_group: 8\n  topk_group: 4\n"), "with 8 experts, each of the 8 groups has only one expert"));
  CHECK(has(refused("  n_group: 4\n  topk_group: 1\n"), "3 experts cannot be chosen from 1 group of 2"));
}

TEST_CASE("ndsl: layers differ by rules, patterns and blocks") {
  const std::string text =
      "name: Small\narchitecture:\n  variant: dense\n"
      "  block: [{op: RMSNorm}, {op: CausalSelfAttention}, {op: SwiGLU_FFN}]\n"
      "  blocks: {plain: [{op: RMSNorm}, {op: CausalSelfAttention}, {op: GELU_FFN}]}\n"
      "  layers:\n    - pattern: [{config: {sliding_window: 8}}, block]\n    - {at: [3, 5..6], block: plain}\n"
      "config: {vocab_size: 32, hidden_size: 16, num_layers: 8, num_query_heads: 4, intermediate_size: 24, "
      "max_position_embeddings: 64}\n";
  const CompiledNdsl model = compiled(text);
  check_ndsl(model);
  for (int64_t i = 0; i < 8; ++i) {
    const specs::Step& layer = model.spec.forward.at(static_cast<size_t>(i) + 1);
    const auto& ops = model.layers.at(static_cast<size_t>(i)).forward_ops;
    CHECK((ops.at(ops.size() - 2) == "GELU") == (i == 3 || i == 5 || i == 6));
    for (const specs::Step& step : layer.steps)
      if (step.op == "Attention") CHECK(step.fields.count("window") == (i % 2 == 0 ? 1u : 0u));
  }
}

TEST_CASE("ndsl: neurons, imports and extended files") {
  const Folder folder("ndsl_files");
  folder.write("parts/ffn.ndsl",
               "name: Wide\ntype: neuron\nblock:\n  - {op: SwiGLU_FFN, config: {intermediate_size: 40}}\n");
  const std::string base =
      folder.write("base.ndsl",
                   "name: Base\nimport: [parts/ffn.ndsl]\narchitecture:\n  variant: dense\n  block: [{op: RMSNorm}, "
                   "{op: CausalSelfAttention}, {op: Wide}]\nconfig: {vocab_size: 32, hidden_size: 16, num_layers: 2, "
                   "num_query_heads: 4, max_position_embeddings: 64}\n");
  CHECK(compile_ndsl(ndsl::read_model_file(base, builtin_ndsl)).find("blk.1.ffn_up.weight")->shape == Shape{40, 16});
  const std::string derived =
      folder.write("derived.ndsl", "name: Derived\nextends: base.ndsl\nconfig: {num_layers: 3}\n");
  const CompiledNdsl model = compile_ndsl(ndsl::read_model_file(derived, builtin_ndsl));
  CHECK(model.layers.size() == 3);
  CHECK(model.file.name.text == "Derived");
  CHECK(compiled("name: Tiny\nextends: Llama2\nconfig: {num_layers: 1, hidden_size: 64, intermediate_size: 8}\n")
            .find("blk.0.ffn_up.weight")
            ->shape == Shape{8, 64});
  const auto refused = [&](const std::string& path) {
    return message_of([&] { ndsl::read_model_file(path, builtin_ndsl); });
  };
  folder.write("a.ndsl", "name: A\nextends: b.ndsl\n");
  CHECK(has(refused(folder.write("b.ndsl", "name: B\nextends: a.ndsl\n")), "includes itself"));
  CHECK(has(refused(folder.write("c.ndsl", "name: C\nextends: c.ndsl\n")), "'c.ndsl' includes itself"));
  CHECK(has(refused(folder.write("d.ndsl", "name: D\nextends: ../b.ndsl\n")), "is outside the folder of its file"));
  CHECK(has(refused(folder.write("e.ndsl", "name: E\nextends: /etc/passwd\n")), "is outside the folder of its file"));
  std::filesystem::create_directory_symlink(std::filesystem::temp_directory_path(), folder.path / "out");
  CHECK(has(refused(folder.write("f.ndsl", "name: F\nextends: out/b.ndsl\n")), "is outside the folder of its file"));
  CHECK(has(refused(folder.write("g.ndsl", "name: G\nextends: none.ndsl\n")), "g.ndsl:2:10: error"));
}

TEST_CASE("ndsl: functionals are operations, with weights of their own") {
  const CompiledNdsl model = compiled(
      around("  block:\n    - RMSNorm\n    - CausalSelfAttention\n    - ResidualAdd\n    - {op: RMSNorm, name: ln2}\n"
             "    - {op: linear, name: mix, weights: {w: [hidden_size, hidden_size], b: [hidden_size]}}\n    - gelu\n"
             "    - ResidualAdd"));
  CHECK(model.layers.at(0).forward_ops ==
        Ops{"LN1", "QKV", "RoPE", "Attention", "AttnOut", "ResidualLN2", "linear", "gelu"});
  CHECK(model.find("blk.1.mix.w")->shape == Shape{16, 16});
  check_ndsl(model);
}

TEST_CASE("ndsl: errors have their place, and the nearest name") {
  CHECK(refusal(around("  block: [{op: RMSNrom}, {op: CausalSelfAttention}]")) ==
        "a.ndsl:4:16: error: there is no operation 'RMSNrom'\n  block: [{op: RMSNrom}, {op: CausalSelfAttention}]\n"
        "               ^~~~~~~\nhelp: did you mean 'RMSNorm'?\n");
  CHECK(has(refusal(around(kShort, "  rop_theta: 3\n")), "a.ndsl:13:3: error: there is no setting 'rop_theta'"));
  CHECK(has(refusal(around(kShort, "  rop_theta: 3\n")), "did you mean 'rope_theta'?"));
  CHECK(has(refusal(around(kShort, "  rope_theta: high\n")), "'rope_theta' is the string 'high'; it must be a number"));
  CHECK(has(refusal(around(kShort, "", "dens")), "did you mean 'dense'?"));
  const std::string several = refusal(around("  block: [{op: RMSNrom}, {op: CausalSelfAtention}]", "  rop_theta: 3\n"));
  CHECK(has(several, "RMSNrom"));
  CHECK(has(several, "CausalSelfAttention'?"));
  CHECK(has(several, "rope_theta'?"));
  CHECK(has(refusal(around("  block: [{op: RMSNorm, epsilon: 3}]")), "an operation has the unknown key 'epsilon'"));
  CHECK(has(refusal(around("  block:\n    - {op: RMSNorm}\n    - {op: CausalSelfAttention, expands_to: [QKV, RoPe, "
                           "Attention, AttnOut]}")),
            "did you mean 'RoPE'?"));
  CHECK(has(refusal(around("  block:\n    - {op: RMSNorm}\n    - {op: CausalSelfAttention, expands_to: [QKV, MLPUp]}")),
            "MLPUp is not a part of CausalSelfAttention"));
  CHECK(has(refusal(around("  block:\n    - {op: RMSNorm}\n    - {op: CausalSelfAttention, reads_from: ln7}")),
            "no earlier operation gives 'ln7'"));
  CHECK(has(
      refusal(around("  block:\n    - {op: RMSNorm}\n    - {op: ResidualAdd, fused_with_next: ln2}\n    - SwiGLU_FFN")),
      "the next operation is not a norm called 'ln2'"));
  CHECK(has(refusal("name: A\narchitecture: {variant: dense, block: [RMSNorm]}\nconfig: {hidden_size: 3}\n"),
            "this needs 'vocab_size'"));
  CHECK(has(refusal("architecture: [1, 2\n"), "this is not YAML"));
  CHECK(has(refusal("[]\n"), "the file is an empty list; it must be a map"));
}

TEST_CASE("ndsl: sizes that contradict each other are refused where they stand") {
  const auto with = [](const std::string& sizes) {
    return refusal(
        "name: A\narchitecture: {variant: dense, block: [RMSNorm, CausalSelfAttention, SwiGLU_FFN]}\n"
        "config: {vocab_size: 32, num_layers: 1, max_position_embeddings: 8, " +
        sizes + "}\n");
  };
  CHECK(has(with("hidden_size: 16, num_query_heads: 3, intermediate_size: 4"),
            "a width of 16 cannot be divided into 3 heads"));
  CHECK(has(with("hidden_size: 16, num_query_heads: 4, num_kv_heads: 3, intermediate_size: 4"),
            "4 query heads cannot share 3 key and value heads"));
  CHECK(has(with("hidden_size: 12, num_query_heads: 4, intermediate_size: 4"),
            "a head of 3 dimensions cannot be rotated"));
  CHECK(has(with("hidden_size: 0, num_query_heads: 4, intermediate_size: 4"), "'hidden_size' is 0; it must be 1 to"));
  CHECK(has(with("hidden_size: 16, num_query_heads: 4"), "this needs 'intermediate_size'"));
  CHECK(with("hidden_size: 16, num_query_heads: 4, intermediate_size: 4") == "no error");
}

TEST_CASE("ndsl: mappings that do not fit are refused where they stand") {
  const auto with = [](const std::string& mapping) { return refusal(around(kShort, "hf_mapping:\n" + mapping)); };
  CHECK(has(with("  blocks[{i}].attention.qkv_wieght: x.{i}\n"), "did you mean 'blocks[{i}].attention.qkv_weight'?"));
  CHECK(has(with("  embedding.weight: a\n"), "hf_mapping leaves out blocks[0].ln1.weight"));
  CHECK(has(with("  embedding.weight: a\n  blocks[{i}].attention.q_weight: q\n  blocks[{i}].attention.qkv_weight: q\n"),
            "is mapped twice"));
  CHECK(has(with("  embedding.weight: {concat: a}\n"), "'concat' is the string 'a'"));
  CHECK(has(with("  embedding.weight: {contact: [a]}\n"), "did you mean 'concat'?"));
  CHECK(has(with("  embedding.weight: {stack_experts: a}\n"), "a string with {e}"));
}

TEST_CASE("ndsl: all built-in models are valid and have their published numbers of parameters") {
  const std::map<std::string, uint64_t> published{
      {"Llama2", 6'738'415'616},    {"Llama3", 8'030'261'248},   {"Qwen2", 494'032'768},
      {"Qwen2.5", 7'615'616'512},   {"Qwen3", 596'049'920},      {"Qwen3MoE", 30'532'122'624},
      {"Mixtral", 46'702'792'704},  {"GPT2", 124'439'808},       {"GPT_NeoX", 1'414'647'808},
      {"Gemma2", 2'614'341'888},    {"Gemma3", 999'885'952},     {"Phi3", 3'821'079'552},
      {"Phi", 2'779'683'840},       {"SmolLM", 134'515'008},     {"BERT", 108'891'648},
      {"GLM4MoE", 106'852'251'264}, {"Qwen2MoE", 14'315'784'192}};
  const std::vector<std::string> names = builtin_ndsl_models();
  CHECK(names.size() == published.size());
  for (const std::string& name : names) {
    INFO(name);
    const auto model = compile_ndsl_model(name);
    CHECK(model->parameters() == published.at(name));
    CHECK_FALSE(folder_tensors(*model).empty());
    CHECK_FALSE(description_of_ndsl(name).empty());
    NdslOptions few;
    few.set = {{"num_layers", "2"}};
    check_ndsl(*compile_ndsl_model(name, few));
  }
}

TEST_CASE("ndsl: initial values depend on the seed alone, and norms begin at one") {
  NdslOptions options;
  options.set = {{"vocab_size", "64"}, {"hidden_size", "32"}, {"num_layers", "8"}, {"num_query_heads", "4"}};
  options.trainable = true;
  const NdslModel one = open_ndsl("GPT2", options), same = open_ndsl("GPT2", options);
  options.seed = 5;
  const NdslModel other = open_ndsl("GPT2", options);
  const auto numbers = [](const NdslModel& model, const std::string& name) {
    return model.model.parameters->tensor(name);
  };
  CHECK(equal_bits(numbers(one, "token_embd.weight"), numbers(same, "token_embd.weight")));
  CHECK_FALSE(equal_bits(numbers(one, "token_embd.weight"), numbers(other, "token_embd.weight")));
  const HTensor gain = numbers(one, "blk.3.attn_norm.weight");
  for (int64_t i = 0; i < gain.size(); ++i) CHECK(gain.data<float>()[i] == 1);
  const auto deviation = [&](const std::string& name) {
    const HTensor t = numbers(one, name);
    double squares = 0;
    for (int64_t i = 0; i < t.size(); ++i) squares += static_cast<double>(t.data<float>()[i]) * t.data<float>()[i];
    return std::sqrt(squares / static_cast<double>(t.size()));
  };
  CHECK(deviation("blk.0.attn_q.weight") == Approx(0.02).epsilon(0.1));
  CHECK(deviation("blk.0.ffn_down.weight") == Approx(0.005).epsilon(0.1));  // 0.02 / sqrt(2 * 8)
  CHECK(one.model.parameters->find("blk.0.attn_q.weight")->role == Role::weight);
}

namespace {

std::map<std::string, HTensor> tensors_of(const NdslModel& model) {
  std::map<std::string, HTensor> tensors;
  for (const auto& [name, stored] : model.model.parameters->all()) tensors[name] = model.model.parameters->tensor(name);
  return tensors;
}

}  // namespace

TEST_CASE("ndsl: a folder that was read is written back the same") {
  const std::string golden = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/";
  for (const std::string& name : builtin_ndsl_models()) {
    INFO(name);
    NdslOptions options;
    options.weights = golden + name;
    const NdslModel model = open_ndsl(name, options);
    const Folder folder("ndsl_written_" + name);
    write_ndsl_folder(*model.compiled, tensors_of(model), {folder.path.string(), "", {}, {}});
    const TensorFile before = read_safetensors(golden + name + "/model.safetensors");
    const TensorFile after = read_safetensors((folder.path / "model.safetensors").string());
    std::set<std::string> names;
    for (const auto& [tensor, numbers] : after.tensors) {
      INFO(tensor);
      names.insert(tensor);
      const auto at = before.tensors.find(tensor);
      const bool bare = at == before.tensors.end();  // saved without the prefix
      const auto found = bare ? before.tensors.find(tensor.substr(tensor.find('.') + 1)) : at;
      REQUIRE(found != before.tensors.end());
      CHECK(equal_bits(numbers, found->second));
    }
    const size_t ignored = name == "BERT" ? 2 : 0;  // the pooler
    CHECK(names.size() + ignored == before.tensors.size());
    options.weights = folder.path.string();
    const NdslModel again = open_ndsl(name, options);
    for (const auto& [parameter, stored] : model.model.parameters->all())
      CHECK(equal_bits(again.model.parameters->tensor(parameter), model.model.parameters->tensor(parameter)));
  }
}

TEST_CASE("ndsl: a printed model is read as the same model, with all settings in it") {
  const auto expect_same = [](const CompiledNdsl& before) {
    const std::string text = ndsl::printed_model(whole_description(before));
    const CompiledNdsl after = compiled(text);
    CHECK(ndsl::printed_model(whole_description(after)) == text);
    CHECK(after.layers == before.layers);
    CHECK(after.sizes == before.sizes);
    CHECK(folder_tensors(after) == folder_tensors(before));
    REQUIRE(after.spec.forward.size() == before.spec.forward.size());
    for (size_t i = 0; i < after.spec.forward.size(); ++i) {
      const specs::Step &a = after.spec.forward[i], &b = before.spec.forward[i];
      CHECK(a.fields == b.fields);
      REQUIRE(a.steps.size() == b.steps.size());
      for (size_t k = 0; k < a.steps.size(); ++k) CHECK(a.steps[k].fields == b.steps[k].fields);
    }
  };
  for (const std::string& name : builtin_ndsl_models()) {
    INFO(name);
    NdslOptions options;
    options.weights = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/" + name;
    expect_same(*compile_ndsl_model(name, options));
  }
  const std::string block =
      "  block: [{op: RMSNorm, name: ln1, config: {eps: 1e-3}}, {op: CausalSelfAttention, config: {use_qk_norm: true}},"
      " ResidualAdd, {op: RMSNorm, name: ln2}, {op: linear, name: mix, weights: {w: [hidden_size, 'hidden_size * 1']}},"
      " ResidualAdd]\n  layers: [{at: [1], config: {sliding_window: 8}}]";
  expect_same(compiled(around(block, "description: 'quotes \" and \\ and ünïcode'\n"), {{"eps", "1e-4"}}));
}

TEST_CASE("ndsl: weights beyond the size of a file are written in several, with an index") {
  NdslOptions options;
  options.weights = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/Qwen3MoE";
  const NdslModel model = open_ndsl("Qwen3MoE", options);
  const Folder folder("ndsl_shards");
  NdslFolder to{folder.path.string(), options.weights, {}, {}};
  write_ndsl_folder(*model.compiled, tensors_of(model), to);
  CHECK(std::filesystem::exists(folder.path / "model.safetensors"));
  to.shard_bytes = 8000;
  write_ndsl_folder(*model.compiled, tensors_of(model), to);
  CHECK_FALSE(std::filesystem::exists(folder.path / "model.safetensors"));
  const auto index = tensors_of_index((folder.path / "model.safetensors.index.json").string());
  std::set<std::string> files;
  for (const auto& [tensor, file] : index) files.insert(file);
  REQUIRE(files.size() > 2);
  for (const std::string& file : files) {
    const TensorFile shard = read_safetensors((folder.path / file).string());
    uint64_t bytes = 0;
    for (const auto& [name, tensor] : shard.tensors) {
      CHECK(index.at(name) == file);
      bytes += type_of(tensor).bytes();
    }
    CHECK((bytes <= to.shard_bytes || shard.tensors.size() == 1));
  }
  options.weights = folder.path.string();
  const NdslModel again = open_ndsl((folder.path / "model.ndsl").string(), options);
  for (const auto& [name, stored] : model.model.parameters->all())
    CHECK(equal_bits(again.model.parameters->tensor(name), model.model.parameters->tensor(name)));
}

TEST_CASE("ndsl: layers that are described alike are checked once") {
  NdslCompileOptions once;
  once.distinct_layers = true;
  const auto layers_of = [&](const std::string& text) {
    return compile_ndsl(ndsl::parse_model_file("a.ndsl", text, "", builtin_ndsl), once).layers.size();
  };
  CHECK(layers_of(builtin_ndsl("Qwen3MoE")) == 1);
  CHECK(layers_of(builtin_ndsl("Gemma3")) == 2);
  const std::string rules = "  layers: [{at: [1], config: {num_kv_heads: 1}}, {at: [0], config: {num_kv_heads: 2}}]";
  CHECK(layers_of(around(kShort + "\n" + rules)) == 2);
  const std::string wrong = "  layers: [{at: [1], config: {num_kv_heads: 3}}]";
  CHECK(has(message_of([&] { layers_of(around(kShort + "\n" + wrong)); }), "num_kv_heads"));
}

TEST_CASE("ndsl: weights that do not fit are listed by name") {
  const std::string golden = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/Llama2";
  NdslOptions options;
  options.weights = golden;
  options.set = {{"intermediate_size", "24"}};
  const std::string misshapen = message_of([&] { open_ndsl("Llama2", options); });
  CHECK(has(misshapen, "model.layers.0.mlp.down_proj.weight is [16, 20] and must be [16, 24]"));
  options.set = {{"num_layers", "3"}};
  CHECK(has(message_of([&] { open_ndsl("Llama2", options); }), "missing: model.layers.2.input_layernorm.weight"));
  options.set = {{"num_layers", "1"}};
  CHECK(has(message_of([&] { open_ndsl("Llama2", options); }), "not used: model.layers.1.input_layernorm.weight"));
}

TEST_CASE("ndsl: published configurations and indices map completely") {
  const char* data = std::getenv("HARMONICS_TEST_DATA");
  const std::string folder = (data ? data : std::string(HARMONICS_SOURCE_DIR) + "/../shared/data") + "/hf_configs/";
  if (!std::filesystem::exists(folder)) {
    WARN("skipped: no folder " << folder << "; set HARMONICS_TEST_DATA");
    return;
  }
  struct Row {
    const char *folder, *model;
    uint64_t parameters;
    bool index;
  };
  const Row rows[] = {{"Llama-2-7B", "Llama2", 6'738'415'616, true},
                      {"Qwen--Qwen3-30B-A3B", "Qwen3MoE", 30'532'122'624, false},
                      {"Qwen--Qwen3-8B", "Qwen3", 8'190'735'360, false},
                      {"Qwen3-1.7B", "Qwen3", 1'720'574'976, true},
                      {"meta-llama--Meta-Llama-3.1-8B", "Llama3", 8'030'261'248, false},
                      {"mistralai--Mixtral-8x7B-v0.1", "Mixtral", 46'702'792'704, false},
                      {"pythia-1.4b-reward-gpt-neox", "GPT_NeoX", 1'414'582'272, true}};
  for (const Row& row : rows) {
    INFO(row.folder);
    NdslOptions options;
    options.weights = folder + row.folder;
    const auto model = compile_ndsl_model(row.model, options);
    CHECK(model->parameters() == row.parameters);
    if (!row.index) continue;
    std::map<std::string, Shape> have;
    for (const auto& [tensor, shard] : tensors_of_index(folder + row.folder + "/model.safetensors.index.json"))
      have[tensor] = Shape{};
    const NdslMisfits misfits = misfits_of(*model, have, false);
    const bool reward = row.model == std::string("GPT_NeoX");  // it has a different head
    CHECK(misfits.missing == (reward ? Ops{"embed_out.weight"} : Ops{}));
    CHECK(misfits.surplus == (reward ? Ops{"out_proj.bias", "out_proj.weight"} : Ops{}));
  }
}
