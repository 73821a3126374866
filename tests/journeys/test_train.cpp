// harmonics train: configurations, their errors, and what is planned.
#include <boost/json.hpp>

#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

TEST_CASE("train: all errors of a configuration are shown in one run, with place and nearest key") {
  const Folder folder;
  const std::string config = folder.write("c.yaml",
                                          "model: m\ndatasets:\n  - path: a.jsonl\n    typ: chat\nmicro_batch_siz: 4\n"
                                          "learning_rate: fast\noptimizer: adamv\nnum_epochs: 0\nlora: {alpah: 8}\n");
  const Result result = harmonics("train " + config);
  CHECK(result.code == 78);
  for (const char* text :
       {"c.yaml:4:5: error:", "did you mean 'type'", "c.yaml:5:1: error: there is no key 'micro_batch_siz'",
        "did you mean 'micro_batch_size'", "c.yaml:6:16: error: 'learning_rate' is the text 'fast'",
        "did you mean 'adamw'", "c.yaml:8:13: error:", "did you mean 'alpha'"})
    CHECK(result.err.find(text) != std::string::npos);
}

TEST_CASE("train: what a whole configuration lacks is named") {
  const Folder folder;
  const Result nothing = harmonics("train " + folder.write("a.yaml", "seed: 1\n"));
  CHECK(nothing.code == 78);
  CHECK(nothing.err.find("the configuration names no model") != std::string::npos);
  CHECK(nothing.err.find("the configuration has no 'datasets'") != std::string::npos);
  const Result twice =
      harmonics("sft " + folder.write("b.yaml",
                                      "model: m\ndatasets: x\nlr: 0.1\nlearning_rate: 0.1\noptim: lion\n"
                                      "adam_epsilon: 1e-8\n"));
  CHECK(twice.code == 78);
  CHECK(twice.err.find("'lr' and 'learning_rate' are one setting") != std::string::npos);
  CHECK(harmonics("train").code == 2);
  const Result set = harmonics("train " + folder.write("c.yaml", "model: m\n") + " --set learning_rat=1");
  CHECK(set.code == 2);
  CHECK(set.err.find("did you mean 'learning_rate'") != std::string::npos);
}

TEST_CASE("train: a setting that the optimizer does not have is refused") {
  const Folder folder;
  const Result result =
      harmonics("train " + folder.write("c.yaml", "model: m\ndatasets: x\noptimizer: lion\nadam_epsilon: 1e-8\n"));
  CHECK(result.code == 78);
  CHECK(result.err.find("'adam_epsilon' has no effect: 'lion' has no such setting") != std::string::npos);
}

TEST_CASE("train: keys are listed with their other names") {
  const Result result = harmonics("train --keys");
  CHECK(result.code == 0);
  CHECK(result.out.find("micro_batch_size: a whole number from 1 (default: 8)") != std::string::npos);
  CHECK(result.out.find("also per_device_train_batch_size") != std::string::npos);
  const json::value keys = json::parse(harmonics("train --keys --json").out);
  CHECK(keys.at("keys").as_array().size() > 30);
}

namespace {

// A model of 2 layers on the bytes of a text that repeats.
std::string tiny_configuration(const Folder& folder, const std::string& output) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mat. ";
  return "model_dsl: GPT2\n"
         "model_settings: {num_layers: 2, hidden_size: 32, num_query_heads: 2, max_position_embeddings: 32, "
         "vocab_size: 256}\n"
         "tokenizer: bytes\ndatasets: " +
         folder.write("text.txt", text) +
         "\nvalidation: 0.1\nsequence_len: 32\nmicro_batch_size: 4\nmax_steps: 60\nlearning_rate: 3e-3\n"
         "warmup_steps: 5\neval_steps: 20\nlogging_steps: 5\noutput_dir: " +
         output + "\n";
}

}  // namespace

TEST_CASE("train: a described model learns a text, and writes what the page says") {
  const Folder folder;
  const std::string output = folder / "out", config = folder.write("c.yaml", tiny_configuration(folder, output));
  const Result dry = harmonics("train " + config + " --dry-run --json --quiet");
  REQUIRE(dry.code == 0);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/train.json"));
  CHECK(SchemaCheck::run(schema, json::parse(dry.out)) == std::vector<std::string>{});
  CHECK(json::parse(dry.out).at("steps").as_int64() == 60);
  CHECK_FALSE(fs::exists(output));

  const Result run = harmonics("train " + config + " --json");
  REQUIRE(run.code == 0);
  CHECK(SchemaCheck::run(schema, json::parse(run.out)) == std::vector<std::string>{});
  CHECK(number(run.out, "steps") == 60);
  CHECK(number(run.out, "loss") < 3.5);  // over the whole run
  CHECK(run.err.find("tokens/s") != std::string::npos);
  CHECK(run.err.find(", perplexity ") != std::string::npos);
  for (const char* file : {"weights.safetensors", "config.yaml", "data.corpus.json", "tokenizer.json", "log.jsonl",
                           "report.html", "checkpoints"})
    CHECK(fs::exists(output + "/" + file));
  CHECK(harmonics("train " + output + "/config.yaml --dry-run --quiet").code == 0);
}

TEST_CASE("train: a resumed run has the bits of one that was never stopped") {
  const Folder folder;
  const std::string whole = folder.write("a.yaml", tiny_configuration(folder, folder / "a")),
                    parts = folder.write("b.yaml", tiny_configuration(folder, folder / "b"));
  REQUIRE(harmonics("train " + whole + " --quiet").code == 0);
  REQUIRE(harmonics("train " + parts + " --quiet --set 'stop_when=val.loss<100'").code == 0);
  REQUIRE(harmonics("train " + parts + " --quiet --resume").code == 0);
  CHECK(read(folder / "a/weights.safetensors") == read(folder / "b/weights.safetensors"));
}

TEST_CASE("patience: a run ends after validations without a smaller loss, and needs data for them") {
  const std::string run = "run " + kSamples +
                          "mnist.hmx --producer 'synth:digits?size=200' --producer 'synth:digits?size=200#label' "
                          "--no-keep --epochs 60 --patience 3";
  const Result stopped = harmonics(
      run + " --json --validate 'synth:digits?size=50&seed=3' --validate 'synth:digits?size=50&seed=3#label'");
  REQUIRE(stopped.code == 0);
  CHECK(number(stopped.out, "epochs") < 60);
  CHECK(stopped.out.find("by patience: no smaller val.loss since epoch") != std::string::npos);
  const Result without = harmonics(run);
  CHECK(without.code == 2);
  CHECK(without.err.find("patience of 3 can never end: there is no validation data") != std::string::npos);
}
