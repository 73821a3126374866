// The verbs for language models, on a model that they create themselves: each prints one object that fits its schema.
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

const char* const kSmallModel =
    "name: Small\ntype: model\nextends: Llama2\nconfig:\n  vocab_size: 300\n  hidden_size: 64\n  num_layers: 2\n"
    "  num_query_heads: 4\n  num_kv_heads: 2\n  intermediate_size: 128\n  max_position_embeddings: 64\n";

json::value object_of(const Result& r) {
  INFO(r.out << r.err);
  REQUIRE(r.code == 0);
  const size_t last = r.out.rfind('\n', r.out.size() - 2);
  return json::parse(r.out.substr(last == std::string::npos ? 0 : last + 1));
}

}  // namespace

TEST_CASE("verbs of language models: each prints one JSON object that matches its schema") {
  Folder f;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The cat sat on mat " + std::to_string(i) + ". ";
  const std::string book = f.write("book.txt", text), spec = f.write("small.ndsl", kSmallModel),
                    tokenizer = f / "tokenizer.json", folder = f / "folder/", gguf = f / "model.gguf",
                    importance = f / "model.importance.gguf", small = f / "small.gguf";
  const std::string config =
      f.write("config.yaml", "model: " + folder + "\ndatasets: " + book +
                                 "\nsequence_len: 16\nmicro_batch_size: 2\nmax_steps: 2\noutput_dir: " + (f / "out"));
  // Each call uses the output of earlier ones.
  const std::vector<std::pair<std::string, std::string>> calls = {
      {"tokenize", "--train 300 --file " + book + " " + tokenizer},
      {"export", spec + " " + folder + " --tokenizer " + tokenizer},
      {"export", folder + " " + gguf},
      {"tokenize", folder + " 'The cat'"},
      {"tokenize", gguf + " --count 'The cat'"},
      {"tokenize", gguf + " --decode '40 41'"},
      {"generate", gguf + " 'The cat' --max-tokens 4"},
      {"generate", folder + " 'The cat' --max-tokens 4 --lookup 2 --log-probabilities 2"},
      {"generate", gguf + " --perplexity " + book},
      {"embed", gguf + " 'The cat' 'The dog'"},
      {"importance", gguf + " " + book + " " + importance + " --chunk 32"},
      {"quantize", gguf + " " + small + " --type q8_0 --importance " + importance},
      {"quantize", gguf + " --type q8_0 --dry-run"},
      {"bench", gguf + " --prefill 8 --decode 4 --repeat 1 --threads 1"},
      {"explain", gguf},
      {"explain", spec},
      {"validate", spec},
      {"infer", gguf + " --prompt 'The cat' --generate 4"},
      {"train", config + " --dry-run"},
      {"train", config},
      {"train", "--keys"},
      {"inspect", gguf},
      {"list-models", "--dsl"},
      {"keys", f / "camera.key"}};
  for (const auto& [verb, words] : calls) {
    INFO(verb << " " << words);
    const json::value printed = object_of(harmonics(verb + " " + words + " --json"));
    CHECK(SchemaCheck::run(schema(verb), printed) == std::vector<std::string>{});
  }
  const Result chat = harmonics_in("echo hello |", "chat " + gguf + " --max-tokens 4 --json");
  CHECK(SchemaCheck::run(schema("chat"), object_of(chat)) == std::vector<std::string>{});
}

TEST_CASE("flags: those of flows and of language models are refused where they have no effect") {
  Folder f;
  const std::string spec = f.write("small.ndsl", kSmallModel), gguf = f / "model.gguf", flow = kSamples + "mnist.hmx ";
  REQUIRE(harmonics("export " + spec + " " + gguf + " --quiet").code == 0);
  const std::pair<std::string, std::string> uses[] = {
      {"serve " + gguf + " --producer x=d.csv", "--producer has no effect: '" + gguf + "' is a language model"},
      {"serve " + gguf + " --control run.sock", "--control has no effect: '" + gguf + "' is a language model"},
      {"serve " + gguf + " --weights w", "--weights has no effect: '" + gguf + "' is a model with its own weights"},
      {"serve " + flow + "--sequences 2", "--sequences has no effect: '" + kSamples + "mnist.hmx' is a flow"},
      {"bench " + gguf + " --batch 8", "--batch has no effect: '" + gguf + "' is a language model"},
      {"bench " + flow + "--prefill 8", "--prefill has no effect: '" + kSamples + "mnist.hmx' is a flow"},
      {"explain " + spec + " --lr 1", "--lr has no effect: '" + spec + "' is a .ndsl file"},
      {"explain " + gguf + " --infer", "--infer has no effect: '" + gguf + "' is a model"},
      {"explain " + gguf + " --dot", "--dot is for flows, but '" + gguf + "' is a model with its own weights"},
      {"explain " + flow + "--tokens 8", "--tokens has no effect: '" + kSamples + "mnist.hmx' is a flow"},
      {"infer " + flow + "--tokenizer t.json", "--tokenizer has no effect: '" + kSamples + "mnist.hmx' is a flow"}};
  for (const auto& [use, message] : uses) {
    const Result r = harmonics(use);
    CHECK(r.code == 2);
    CHECK(r.err == "error: " + message + "\nhelp: leave it out\n");
  }
  const std::pair<std::string, std::string> others[] = {
      {"explain " + gguf + " --show widths", "--show widths has no effect: '" + gguf + "' is a model"},
      {"explain " + flow + "--entry loss", "--entry has no effect without --show entries"},
      {"infer " + gguf + " --prompt hi --producer tokens=t.csv", "--producer has no effect beside --prompt"},
      {"infer " + flow + "--weights w --producer synth:digits --generate 3",
       "--generate has no effect without --prompt TEXT"}};
  for (const auto& [use, message] : others) {
    const Result r = harmonics(use);
    CHECK(r.code == 2);
    CHECK(r.err.starts_with("error: " + message + "\nhelp: "));
  }
}
