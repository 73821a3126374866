// Model folders described by .ndsl files: the output of `train` and `export` is used by generate, chat, serve,
// quantize, embed and train.
#include <boost/json.hpp>

#include "tests/journeys/background.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

bool reads_described_folders() { return harmonics("list importers").out.find("huggingface") != std::string::npos; }

json::value answer_of(const std::string& arguments) {
  const Result result = harmonics(arguments);
  INFO(arguments << "\n" << result.err);
  REQUIRE(result.code == 0);
  return json::parse(result.out);
}

const std::string kSentence = "the cat sat on the mat. ";

std::string repeated_text(const Folder& f) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += kSentence;
  return f.write("text.txt", text);
}

// Returns the folder of a model of two layers that learned the sentence.
std::string learned_folder(const Folder& f, const std::string& model, const std::string& more = "") {
  const std::string config = f.write(
      "c.yaml", "model_dsl: " + model +
                    "\nmodel_settings: {num_layers: 2, hidden_size: 32, num_query_heads: 2, intermediate_size: 64, "
                    "max_position_embeddings: 64, vocab_size: 256" +
                    more +
                    "}\n"
                    "tokenizer: bytes\ndatasets: " +
                    repeated_text(f) +
                    "\nsequence_len: 32\nmicro_batch_size: 8\nmax_steps: 150\nlearning_rate: 1e-2\nwarmup_steps: 5\n"
                    "output_dir: " +
                    (f / "out") + "\n");
  const Result run = harmonics("train " + config + " --quiet");
  INFO(run.err);
  REQUIRE(run.code == 0);
  return f / "out/model";
}

std::string continued(const std::string& model, const std::string& prompt) {
  return std::string(answer_of("generate " + model + " '" + prompt + "' --temperature 0 --max-tokens 12 --json")
                         .at("text")
                         .as_string());
}

}  // namespace

TEST_CASE("a described model that train wrote is continued, talked to, quantised and trained further") {
  if (!reads_described_folders()) return;  // built without PCRE2
  const Folder f;
  const std::string folder = learned_folder(f, "GPT2");
  for (const char* name : {"config.json", "model.safetensors", "model.ndsl", "tokenizer.json"})
    CHECK(fs::exists(folder + "/" + name));
  const json::value config = json::parse(read(folder + "/config.json"));
  CHECK(config.at("model_type").as_string() == "gpt2");
  CHECK(config.at("n_embd").as_int64() == 32);
  CHECK(config.at("model_dsl").as_string() == "model.ndsl");
  CHECK(continued(folder, "the cat") == " sat on the ");
  CHECK(harmonics("validate " + folder + "/model.ndsl").code == 0);
  CHECK(answer_of("explain " + folder + " --json").at("model").at("parameters").as_int64() > 20'000);
  // The folder's description is self-contained: the built-in one gives the same answer.
  CHECK(answer_of("generate GPT2 --weights " + folder + " 'the cat' --temperature 0 --max-tokens 12 --json")
            .at("text")
            .as_string() == " sat on the ");
  const std::string chat = "timeout 60 '" + kProgram + "' chat " + folder + " --max-tokens 5 --json < '" +
                           f.write("said", "the cat\n") + "' > '" + (f / "answers") + "'";
  CHECK(std::system(chat.c_str()) == 0);
  CHECK(json::parse(read(f / "answers")).at("messages").as_array().size() == 2);
  const std::string small = f / "small.gguf";
  const Result quantized = harmonics("quantize " + folder + " " + small + " --type q8_0");
  CHECK(quantized.code == 0);
  CHECK(quantized.err.find("the file has no tokenizer") == std::string::npos);
  CHECK(continued(small, "the cat") == " sat on the ");
  const std::string again = f / "again/";
  CHECK(harmonics("export " + folder + " " + again).code == 0);
  CHECK(read(again + "model.safetensors") == read(folder + "/model.safetensors"));
  CHECK(read(again + "config.json") == read(folder + "/config.json"));
  const std::string further = f.write(
      "further.yaml", "model: " + folder + "\ndatasets: " + (f / "text.txt") +
                          "\nsequence_len: 32\nmax_steps: 2\nlearning_rate: 1e-4\noutput_dir: " + (f / "two") + "\n");
  const Result run = harmonics("train " + further + " --quiet");
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK(continued(f / "two/model", "the cat") == " sat on the ");
}

TEST_CASE("a described model answers over HTTP and gives vectors") {
  if (!reads_described_folders()) return;
  const Folder f;
  const std::string folder = learned_folder(f, "Llama3", ", num_kv_heads: 2");
  Background server(f, "serve " + folder + " --listen 127.0.0.1:0");
  const std::string word = "serving on ";
  REQUIRE(server.await([&] { return server.errors().find(word) != std::string::npos; }));
  const std::string errors = server.errors();
  const size_t at = errors.find(word) + word.size();
  const std::string address = errors.substr(at, errors.find_first_of(" \n", at) - at);
  const std::string ask = "timeout 60 curl -sS -H 'Content-Type: application/json' -o '" + (f / "reply") + "' -d '" +
                          R"({"prompt": "the cat", "max_tokens": 12, "temperature": 0})" + "' " + address +
                          "/v1/completions";
  REQUIRE(std::system(ask.c_str()) == 0);
  CHECK(json::parse(read(f / "reply")).at_pointer("/choices/0/text").as_string() == " sat on the ");
  server.signal(SIGINT);
  CHECK(server.end().code == 130);
  const json::value vectors = answer_of("embed " + folder + " 'the cat' --pooling mean --json");
  CHECK(json::serialize(vectors).size() > 100);
}

TEST_CASE("a described model of one's own is exported under its own names, and read again") {
  if (!reads_described_folders()) return;
  const Folder f;
  f.write("parts.ndsl",
          "name: Wide\ntype: neuron\nblock:\n  - {op: RMSNorm, name: ln2}\n  - SwiGLU_FFN\n  - ResidualAdd\n");
  const std::string model = f.write(
      "own.ndsl",
      "name: Own\nimport: [parts.ndsl]\narchitecture:\n  variant: dense\n  block:\n    - {op: RMSNorm, name: ln1}\n"
      "    - CausalSelfAttention\n    - ResidualAdd\n    - Wide\n  layers:\n    - {at: [1], config: {sliding_window: "
      "4}}\n"
      "config:\n  vocab_size: 256\n  hidden_size: 16\n  num_layers: 2\n  num_query_heads: 2\n  intermediate_size: 24\n"
      "  max_position_embeddings: 32\n");
  const Result made = harmonics("export " + model + " " + (f / "own/"));
  CHECK(made.code == 0);
  CHECK(made.err.find("these are initial values") != std::string::npos);
  CHECK(made.err.find("the folder has no tokenizer") != std::string::npos);
  CHECK(json::parse(read(f / "own/config.json")).at("model_type").as_string() == "ndsl");
  const auto before = answer_of("explain " + model + " --json").at("transformer").at("blocks");
  CHECK(answer_of("explain " + (f / "own/model.ndsl") + " --json").at("transformer").at("blocks") == before);
  CHECK(answer_of("explain " + (f / "own") + " --json").at("model").at("weights").as_array().size() > 10);
  const std::string gguf = f / "own.gguf";
  CHECK(harmonics("export " + (f / "own") + " " + gguf).code == 0);
  CHECK(harmonics("export " + gguf + " " + (f / "back/")).code == 0);
  CHECK(read(f / "back/model.safetensors") == read(f / "own/model.safetensors"));
}

TEST_CASE("a folder of a class that nothing describes is refused with what is known") {
  if (!reads_described_folders()) return;
  const Folder f;
  fs::copy(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/ndsl/GPT2", f / "tiny");
  const std::string config = read(f / "tiny/config.json");
  const size_t at = config.find("GPT2LMHeadModel");
  f.write("tiny/config.json", config.substr(0, at) + "MambaForCausalLM" + config.substr(at + 15));
  const Result result = harmonics("explain " + (f / "tiny"));
  CHECK(result.code != 0);
  CHECK(result.err.find("is a model of the architecture 'MambaForCausalLM', which is not known") != std::string::npos);
  CHECK(result.err.find("GemmaForCausalLM") != std::string::npos);
}

TEST_CASE("folders of further architectures are trained one step, and the result is written again as it is") {
  if (!reads_described_folders()) return;
  json::object vocabulary{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int i = 3; i < 40; ++i) vocabulary[std::string(1, static_cast<char>('A' + i))] = i;
  const json::object model{{"type", "BPE"},
                           {"vocab", vocabulary},
                           {"merges", json::array()},
                           {"unk_token", "<unk>"},
                           {"byte_fallback", true}};
  for (const std::string name : {"stablelm", "glm4", "nemotron", "hunyuan-dense", "granitemoe", "exaone", "gpt-oss",
                                 "gpt-oss-mxfp4", "gptneox-serial", "command-r", "olmo3", "starcoder2-window"}) {
    INFO(name);
    const Folder f;
    fs::copy(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/folders/" + name, f / "model");
    f.write("model/tokenizer.json", json::serialize(json::object{{"model", model}, {"added_tokens", json::array()}}));
    std::string text;
    for (int i = 0; i < 40; ++i) text += "DEFGHIJKLMNOPQ";
    const std::string config = f.write(
        "c.yaml", "model: " + (f / "model") + "\ndatasets: " + f.write("text.txt", text) +
                      "\nsequence_len: 16\nmax_steps: 1\nlearning_rate: 1e-2\noutput_dir: " + (f / "out") + "\n");
    const Result dry = harmonics("train " + config + " --dry-run"), run = harmonics("train " + config + " --quiet");
    INFO(dry.err << run.err);
    REQUIRE(dry.code == 0);
    REQUIRE(run.code == 0);
    const std::string trained = f / "out/model", again = f / "again/";
    CHECK(read(trained + "/model.safetensors") != read(f / "model/model.safetensors"));
    const json::value before = json::parse(read(f / "model/config.json")),
                      after = json::parse(read(trained + "/config.json"));
    CHECK(after.at("architectures") == before.at("architectures"));
    CHECK(after.at("model_type") == before.at("model_type"));
    REQUIRE(harmonics("export " + trained + " " + again).code == 0);
    CHECK(read(again + "model.safetensors") == read(trained + "/model.safetensors"));
    CHECK(read(again + "config.json") == read(trained + "/config.json"));
  }
}
