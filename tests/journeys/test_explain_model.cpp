// harmonics explain of models and specs, and generate with a spec.
#include <boost/json.hpp>

#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

const std::string kTinyModels = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/architectures/";
const std::string kSpecs = std::string(HARMONICS_SOURCE_DIR) + "/engine/transformer/specs/";

bool has_gguf() { return has(harmonics("list importers").out, "gguf"); }

}  // namespace

TEST_CASE("explain: a model's numbers are printed with their origins") {
  if (!has_gguf()) return;
  const Result r = harmonics("explain " + kTinyModels + "gemma3.gguf --set window=3");
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(has(r.out, "spec  gemma3.json\n"));
  for (const char* line : {"n_layers               2            metadata gemma3.block_count\n",
                           "window                 3            --set window=3\n",
                           "q_width                32           spec, prepare.globals = n_heads * head_dim\n",
                           "vocab_size             40           rows of the tensor token_embd.weight\n"}) {
    INFO(line);
    CHECK(has(r.out, line));
  }
  CHECK(has(r.out, "output.weight                            f32[40, 24], from token_embd.weight\n"));
  CHECK(has(r.out, "caches\n  4 in f32, "));
  const Result object = harmonics("explain " + kTinyModels + "gemma3.gguf --json");
  REQUIRE(object.code == 0);
  const json::value v = json::parse(object.out);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/explain.json"));
  CHECK(SchemaCheck::run(schema, v) == std::vector<std::string>{});
  CHECK(v.at("model").at("variables").as_array().size() > 10);
}

TEST_CASE("explain: a spec is applied to a file of weights, or says what it lacks") {
  if (!has_gguf()) return;
  const Result r = harmonics("explain " + kSpecs + "qwen3.json --weights " + kTinyModels + "qwen3.gguf");
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(has(r.out, "spec  " + kSpecs + "qwen3.json\n"));
  const Result alone = harmonics("explain " + kSpecs + "qwen3.json");
  CHECK(alone.code == 2);
  CHECK(has(alone.err, "help: give --weights MODEL.gguf\n"));
  const Result other = harmonics("explain " + kSpecs + "gemma2.json --weights " + kTinyModels + "llama.gguf");
  CHECK(other.code != 0);
  CHECK(has(other.err, "the variable 'max_seq_len' has no value"));
  CHECK(has(other.err, "help: the metadata: gemma2.context_length in the file of the weights\n"));
  CHECK(has(other.err, "help: the run: --set max_seq_len=VALUE\n"));
  const Result wrong = harmonics("explain " + kTinyModels + "llama.gguf --set d_modle=3");
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "help: did you mean 'd_model'?\n"));
  CHECK(harmonics("explain " + kTinyModels + "llama.gguf --set d_model").code == 2);
}

TEST_CASE("generate: --spec and --set change what the model computes") {
  const std::string folder = data_folder();
  if (folder.empty() || !fs::exists(fs::path(folder) / "llama2c")) return;
  const std::string call = "generate " + folder + "/llama2c/stories260K.bin --tokenizer " + folder +
                           "/llama2c/tok512.bin --temperature 0 --max-tokens 30 --quiet ";
  const Result plain = harmonics(call), same = harmonics(call + "--spec " + kSpecs + "llama.json"),
               other = harmonics(call + "--set rope_base=77");
  INFO(same.err);
  REQUIRE(same.code == 0);
  CHECK(same.out == plain.out);
  REQUIRE(other.code == 0);
  CHECK(other.out != plain.out);
}

TEST_CASE("explain and export: LoRA adapters are shown, and merged") {
  if (!has_gguf()) return;
  const Folder f;
  const std::string adapters = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/adapters/";
  const std::string model = kTinyModels + "llama.gguf";
  const Result r =
      harmonics("explain " + model + " --lora " + adapters + "patterns --lora " + adapters + "every.gguf=0.5");
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(has(r.out, "adapter " + adapters + "patterns\n  PEFT, applied with the factor 1\n"));
  CHECK(has(r.out, "  blk.0.attn_k.weight                      rank 2, alpha 9, scale 6.36396\n"));
  CHECK(has(r.out, "adapter " + adapters + "every.gguf\n  GGUF, applied with the factor 0.5\n"));
  CHECK(has(r.out, "  output.weight                            rank 4, alpha 6, scale 0.75\n"));
  const Result object = harmonics("explain " + model + " --json --lora " + adapters + "attention");
  REQUIRE(object.code == 0);
  const json::value v = json::parse(object.out);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/explain.json"));
  CHECK(SchemaCheck::run(schema, v) == std::vector<std::string>{});
  CHECK(v.at("model").at("adapters").at(0).at("weights").as_array().size() == 4);
  const std::string merged = f / "merged.gguf";
  const Result exported = harmonics("export " + model + " " + merged + " --lora " + adapters + "every");
  INFO(exported.err);
  REQUIRE(exported.code == 0);
  CHECK(harmonics("explain " + merged).code == 0);
  const Result other = harmonics("explain " + kTinyModels + "qwen2.gguf --lora " + adapters + "every.gguf");
  CHECK(other.code != 0);
  CHECK(has(other.err, "is for the architecture 'llama'"));
  const std::string flow = std::string(HARMONICS_SOURCE_DIR) + "/samples/mnist.hmx";
  CHECK(has(harmonics("explain " + flow + " --lora x").err, "--lora is for language models, but '" + flow + "'"));
  const Result tied =
      harmonics("export " + kTinyModels + "llama_linear.gguf " + merged + " --lora " + adapters + "every");
  CHECK(tied.code != 0);
  CHECK(has(tied.err, "uses the tensor 'token_embd.weight' for other weights too"));
}
