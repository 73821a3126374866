// Transformers in YAML on the command line: listed, checked, explained, and run with the weights of a folder.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include <boost/json.hpp>

#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

const std::string kPrinted = std::string(HARMONICS_SOURCE_DIR) + "/tests/dsl/ndsl/";

// Returns the folder of a tiny Llama with a tokenizer of the same size.
std::string words_folder(const Folder& f) {
  const std::string folder = f / "tiny";
  fs::copy(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/folders/llama3", folder);
  boost::json::object vocab{{"[UNK]", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int i = 3; i < 40; ++i) vocab["w" + std::to_string(i)] = i;
  const boost::json::object words{{"type", "WhitespaceSplit"}};
  const boost::json::object model{{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", vocab}};
  const boost::json::object file{{"model", model}, {"pre_tokenizer", words}, {"added_tokens", boost::json::array()}};
  f.write("tiny/tokenizer.json", boost::json::serialize(file));
  f.write("tiny/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  return folder;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("transformers in YAML are listed and checked") {
  const Result listed = harmonics("list models");
  CHECK(listed.code == 0);
  CHECK(contains(listed.out, "Qwen3MoE"));
  CHECK(contains(listed.out, "  gpt-oss                gpt-oss (GptOssForCausalLM)\n"));
  CHECK(contains(listed.out, "Mixtral 8x7B (MixtralForCausalLM)"));
  CHECK(harmonics("list-models --dsl").out == listed.out);
  const Result valid = harmonics("validate " + kPrinted + "Llama2.ndsl " + kPrinted + "GPT_NeoX.ndsl " + kPrinted +
                                 "Qwen3MoE.ndsl " + kPrinted + "MyCustomModel.ndsl Gemma3");
  CHECK(valid.code == 0);
  CHECK(valid.out + valid.err == kPrinted + "Llama2.ndsl: ok\n" + kPrinted + "GPT_NeoX.ndsl: ok\n" + kPrinted +
                                     "Qwen3MoE.ndsl: ok\n" + kPrinted + "MyCustomModel.ndsl: ok\nGemma3: ok\n");
  CHECK(harmonics("validate Llama3 --set num_layers=2").code == 0);
  const Result set = harmonics("validate Llama3 --set num_query_heads=7");
  CHECK(set.code == 78);
  CHECK(contains(set.err, "7 query heads"));
  CHECK(contains(harmonics("validate " + kSamples + "mnist.hmx --set a=1").err, "--set is for models, and '"));
  const Folder f;
  f.write("bad.ndsl", "name: Bad\narchitecture:\n  variant: dense\n  block: [RMSNrom, SwiGLU_FFN]\nconfig: {}\n");
  const Result bad = harmonics("validate " + (f / "bad.ndsl"));
  CHECK(bad.code == 78);
  CHECK(contains(bad.err, "did you mean 'RMSNorm'?"));
  CHECK(contains(bad.err, "bad.ndsl:4:11: error: there is no operation 'RMSNrom'"));
}

TEST_CASE("transformers in YAML are explained") {
  const auto model = boost::json::parse(harmonics("explain Llama2 --set num_layers=2 --json").out).at("transformer");
  CHECK(model.at("parameters").as_int64() == 666'914'816);
  CHECK(model.at("blocks").as_array().size() == 2);
  CHECK(model.at("blocks").at(0).at("forward_ops").as_array().size() == 9);
  const Result text = harmonics("explain " + kPrinted + "Qwen3MoE.ndsl");
  CHECK(contains(text.out, "LN1, QKV, QKNorm, RoPE, Attention, AttnOut, ResidualLN2, Router, Experts, Combine"));
  CHECK(contains(text.out, "layers 0 to 23"));
  const Result mixed = harmonics("explain " + kSamples + "ndsl/patterned.ndsl");
  CHECK(contains(mixed.out, "  blk.0."));
  CHECK(contains(mixed.out, "ffn_gate_inp.weight"));  // of the layers with experts, which are not the first ones
  CHECK(contains(mixed.out, "(every other layer has the tensors of one of these)"));
  const Result flow = harmonics("explain Llama2 --show flow");
  CHECK(flow.code == 2);
  CHECK(contains(flow.err, "error: --show flow has no effect: 'Llama2' is a .ndsl file\n"));
  CHECK(contains(flow.err, "entries, program, kernels, memory"));
}

TEST_CASE("transformers in YAML show their programs, kernels and implementations without memory for weights") {
  const std::string small = "explain Llama2 --set num_layers=2 ";
  const auto implementations = boost::json::parse(harmonics(small + "--select --json").out);
  CHECK(SchemaCheck::run(schema("explain"), implementations) == std::vector<std::string>{});
  std::set<std::string> scopes, functionals;
  for (const auto& one : implementations.at("implementations").as_array()) {
    scopes.emplace(one.at("scope").as_string());
    functionals.emplace(one.at("functional").as_string());
  }
  for (const char* op : {"LN1", "QKV", "RoPE", "Attention", "AttnOut", "ResidualLN2", "MLPUp", "SwiGLU", "MLPDown"})
    CHECK(scopes.count("decode/blk.1." + std::string(op)) == 1);
  for (const char* name : {"linear", "rms_norm", "rope", "attention", "silu"}) CHECK(functionals.count(name) == 1);
  CHECK(contains(harmonics(small + "--show kernels --entry prefill --tokens 4").out, "kernels of the entry prefill"));
  CHECK(contains(harmonics(small + "--show program --entry loss --tokens 4").out, "program of the entry loss"));
  CHECK(contains(harmonics(small + "--after trace").out, "program of the entry decode after trace"));
  CHECK(contains(harmonics(small + "--placement").out, "on cpu, none on the host"));
  const Result entries = harmonics("explain Llama2 --show entries --tokens 8 --batch 3");  // 27 GB of weights
  CHECK(entries.code == 0);
  CHECK(contains(entries.out, "entries of Llama2, for a batch of 3 and 8 tokens"));
  CHECK(contains(entries.out, "scores f32[3, 8, 32000]"));
  CHECK(contains(harmonics("explain Llama2 --show memory").out, "6,738,415,616 numbers in all"));
  const Result missing = harmonics(small + "--entry decod");
  CHECK(missing.code == 2);
  CHECK(contains(missing.err, "the model has no entry 'decod'\nhelp: did you mean 'decode'?"));
  CHECK(contains(harmonics(small + "--select --weights none").err, "--weights: there is no 'none'"));
  CHECK(contains(harmonics(small + "--select --lr 1").err, "--lr has no effect: 'Llama2' is a .ndsl file"));
}

namespace {

// Returns a tensor of f32 in a file of safetensors.
std::vector<float> numbers_of(const std::string& file, const std::string& name) {
  const std::string bytes = read(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto tensors = boost::json::parse(bytes.substr(8, header)).as_object();
  REQUIRE(tensors.contains(name));
  const auto& at = tensors.at(name).at("data_offsets");
  const auto from = at.at(0).to_number<size_t>(), to = at.at(1).to_number<size_t>();
  std::vector<float> numbers((to - from) / sizeof(float));
  std::memcpy(numbers.data(), bytes.data() + 8 + header + from, to - from);
  return numbers;
}

}  // namespace

TEST_CASE("functionals and activations of plugins are operations of blocks and hidden_act") {
  const Folder f;
  const std::string plugin = f / "kinds.so";
  fs::copy_file(std::string(HARMONICS_SOURCE_DIR) + "/tests/plugins/golden/kinds_v1_gnu.so", plugin);
  const auto model = [&](const std::string& slope) {
    return f.write("model.ndsl",
                   "name: Own\narchitecture:\n  variant: dense\n  block:\n    - {op: RMSNorm, name: ln1}\n"
                   "    - {op: gnu_swish, name: steep, config: {" +
                       slope +
                       "}}\n    - {op: gnu_cube, name: cubed}\n    - {op: tanh, name: bounded}\n"
                       "    - {op: GELU_FFN, config: {hidden_act: gnu_half}}\n"
                       "    - {op: ResidualAdd}\n    - {op: ReLU_FFN, name: second, config: {hidden_act: relu}}\n"
                       "config: {vocab_size: 40, hidden_size: 16, num_layers: 1, num_query_heads: 4, "
                       "intermediate_size: 24, max_position_embeddings: 32, initializer_range: 0.5}\n");
  };
  const std::string loaded = " --plugin " + plugin;
  const std::string file = model("slope: 2");
  CHECK(has(harmonics("validate " + file + loaded).err, file + ": ok\n"));
  const Result run =
      harmonics("infer " + file + loaded + " --untrained -p 'tokens=" + f.write("tokens.csv", "1,2,3,4,5\n") +
                "#0-4' --trace " + (f / "values"));
  REQUIRE(run.code == 0);
  const auto value = [&](const std::string& name) { return numbers_of(f / "values/0.safetensors", "blk.0." + name); };
  const std::vector<float> norm = value("LN1"), steep = value("steep"), cubed = value("cubed"),
                           bounded = value("bounded"), up = value("MLPUp.up"), half = value("GELU");
  REQUIRE(norm.size() == 5 * 16);
  for (size_t i = 0; i < norm.size(); ++i) {
    CHECK(steep[i] == Approx(norm[i] / (1 + std::exp(-2 * norm[i]))).margin(1e-6));
    CHECK(cubed[i] == Approx(steep[i] * steep[i] * steep[i]).margin(1e-6));
    CHECK(bounded[i] == Approx(std::tanh(cubed[i])).margin(1e-6));
  }
  REQUIRE(up.size() == 5 * 24);
  for (size_t i = 0; i < up.size(); ++i) CHECK(half[i] == Approx(up[i] / 2).margin(1e-6));
  const auto refused = [&](const std::string& slope) { return harmonics("validate " + model(slope) + loaded).err; };
  CHECK(contains(refused("slop: 2"), "model.ndsl:6:45: error:"));
  CHECK(contains(refused("slop: 2"), "did you mean 'slope'?"));
  CHECK(contains(refused("slope: 200"), "model.ndsl:6:"));
  const Result without = harmonics("validate " + model("slope: 2"));
  CHECK(contains(without.err, "there is no operation 'gnu_swish'"));
  CHECK(contains(without.err, "there is no activation 'gnu_half'"));
}

TEST_CASE("a transformer in YAML continues a text with the weights of a folder") {
  if (!contains(harmonics("list importers").out, "huggingface")) return;  // built without PCRE2
  const Folder f;
  const std::string folder = words_folder(f);
  const std::string flags = " 'w5 w6 w7' --temperature 0 --max-tokens 5 --json";
  const Result by_folder = harmonics("generate " + folder + flags);
  const Result by_name = harmonics("generate Llama3 --weights " + folder + flags);
  REQUIRE(by_folder.code == 0);
  REQUIRE(by_name.code == 0);
  CHECK(boost::json::parse(by_name.out).at("text") == boost::json::parse(by_folder.out).at("text"));
  const Result without = harmonics("generate Llama3" + flags);
  CHECK(without.code == 2);
  CHECK(contains(without.err, "lacks --weights FOLDER"));
}
