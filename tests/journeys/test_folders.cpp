// Hugging Face folders on the command line: explained, inspected, used for generation, quantised, and written in both
// directions.
#include <catch2/catch.hpp>

#include <filesystem>

#include <boost/json.hpp>

#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

bool reads_model_folders() { return harmonics("list importers").out.find("huggingface") != std::string::npos; }

// Returns the folder of a tiny model with a tokenizer of the same size.
std::string talking_folder(const Folder& f) {
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

boost::json::value json_of(const Result& result) {
  REQUIRE(result.code == 0);
  return boost::json::parse(result.out);
}

}  // namespace

TEST_CASE("a folder of Hugging Face is explained, inspected and continued as a model") {
  if (!reads_model_folders()) return;  // built without PCRE2
  const Folder f;
  const std::string folder = talking_folder(f);
  const auto explained = json_of(harmonics("explain " + folder + " --json")).at("model");
  CHECK(explained.at("parameters").as_int64() > 5000);
  const auto inspected = json_of(harmonics("inspect " + folder + " --json"));
  CHECK(inspected.at("importer").as_string() == "huggingface");
  CHECK(inspected.at("metadata").at("llama.rope.pairing").as_string() == "half");
  const std::string flags = " 'w5 w6 w7' --temperature 0 --max-tokens 5 --json";
  const auto said = json_of(harmonics("generate " + folder + flags));
  CHECK(said.at("tokens").as_int64() >= 1);
  CHECK(said.at("text") == json_of(harmonics("generate " + folder + "/config.json" + flags)).at("text"));
}

TEST_CASE("a folder written from a folder has its tokenizer, also one that GGUF cannot express") {
  if (!reads_model_folders()) return;
  const Folder f;
  const std::string folder = talking_folder(f);
  boost::json::object vocabulary{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int i = 3; i < 40; ++i) vocabulary[std::string(1, static_cast<char>('A' + i))] = i;
  const boost::json::object model{
      {"type", "BPE"}, {"vocab", vocabulary}, {"merges", boost::json::array()}, {"unk_token", "<unk>"}};
  f.write("tiny/tokenizer.json",
          boost::json::serialize(boost::json::object{{"model", model}, {"added_tokens", boost::json::array()}}));
  CHECK(harmonics("export " + folder + " " + (f / "tiny.gguf")).err.find("that GGUF has no kind for") !=
        std::string::npos);
  const std::string copy = f / "copy/";
  REQUIRE(harmonics("export " + folder + " " + copy).code == 0);
  const std::string text = f.write("text.txt", "DEFGHIJKLMNOPQRSTUVWXYZ");
  const std::string config = f.write("c.yaml", "model: " + folder + "\ndatasets: " + text +
                                                   "\nsequence_len: 8\nmicro_batch_size: 2\nmax_steps: 1\n" +
                                                   "learning_rate: 1e-3\noutput_dir: " + (f / "out") + "\n");
  const Result run = harmonics("train " + config + " --quiet");
  INFO(run.err);
  REQUIRE(run.code == 0);
  for (const std::string& made : {copy, f / "out/model/"}) {
    INFO(made);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"})
      CHECK(read(made + name) == read(folder + "/" + name));
    const auto settings = boost::json::parse(read(made + "config.json"));
    CHECK(settings.at("bos_token_id").as_int64() == 1);
    CHECK(settings.at("eos_token_id").as_int64() == 2);
    CHECK(json_of(harmonics("generate " + made + " FGH --temperature 0 --max-tokens 3 --json")).at("tokens") != 0);
  }
  const std::string flags = " FGH --temperature 0 --max-tokens 5 --json";
  CHECK(json_of(harmonics("generate " + copy + flags)).at("text") ==
        json_of(harmonics("generate " + folder + flags)).at("text"));
}

TEST_CASE("a folder of Hugging Face becomes a GGUF file and a folder again") {
  if (!reads_model_folders()) return;
  const Folder f;
  const std::string folder = talking_folder(f);
  fs::remove(folder + "/tokenizer.json");  // of a kind that GGUF cannot express
  const std::string gguf = f / "tiny.gguf", again = f / "again/";
  CHECK(harmonics("export " + folder + " " + gguf).code == 0);
  CHECK(harmonics("export " + gguf + " " + again).code == 0);
  CHECK(fs::exists(again + "config.json"));
  CHECK(fs::exists(again + "model.safetensors"));
  const auto count = [](const std::string& path) {
    return json_of(harmonics("inspect " + path + " --json")).at("parameters").as_int64();
  };
  CHECK(count(gguf) == count(folder));
  CHECK(count(again) == count(folder));
  const std::string small = f / "small.gguf";
  CHECK(harmonics("quantize " + folder + " " + small + " --type f16").code == 0);
  CHECK(count(small) == count(folder));
  CHECK(fs::file_size(small) < fs::file_size(gguf));
  CHECK_FALSE(fs::exists(small + ".whole.gguf"));
}

TEST_CASE("a folder without weights is explained by its settings, and runs nothing") {
  if (!reads_model_folders()) return;
  const Folder f;
  const std::string folder = talking_folder(f);
  fs::remove(folder + "/model.safetensors");
  const Result explained = harmonics("explain " + folder);
  CHECK(explained.code == 0);
  CHECK(explained.out.find("the folder has no weights") != std::string::npos);
  const Result generated = harmonics("generate " + folder + " w5");
  CHECK(generated.code != 0);
  CHECK(generated.err.find("neither model.safetensors nor model.safetensors.index.json") != std::string::npos);
}

TEST_CASE("a folder whose only block has global attention is not read as one with a window") {
  if (!reads_model_folders()) return;
  const Folder f;
  const auto explained = [&](const std::string& kind, const std::string& model = "Gemma2") {
    fs::create_directories(f / "gemma");
    f.write("gemma/config.json", R"({"architectures": [")" + model + R"(ForCausalLM"], "hidden_size": 16, "head_dim": 8,
                "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1,
                "max_position_embeddings": 32, "sliding_window": 5, "vocab_size": 40, "rms_norm_eps": 1e-6,
                "query_pre_attn_scalar": 8, "hidden_activation": "gelu_pytorch_tanh", "layer_types": [")" +
                                     kind + "\"]}");
    return harmonics("explain " + (f / "gemma"));
  };
  const Result window = explained("sliding_attention"), all = explained("full_attention");
  CHECK(window.out.find("gemma2.attention.sliding_window") != std::string::npos);
  REQUIRE(all.code == 0);
  CHECK(all.out.find("sliding_window") == std::string::npos);  // described by a .ndsl text
  const Result other = explained("full_attention", "Olmo3");
  CHECK(other.code != 0);
  INFO(other.err);
  CHECK(other.err.find("uses global attention in blocks other than the last of every 4") != std::string::npos);
}
