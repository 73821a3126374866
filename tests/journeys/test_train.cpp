// harmonics train: configurations, their errors, and the plan.
#include <sstream>

#include <boost/json.hpp>

#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

TEST_CASE("train: all errors of a configuration are shown in one run, with place and nearest key") {
  const Folder folder;
  const std::string config =
      folder.write("c.yaml",
                   "model: GPT2\ndatasets:\n  - path: a.jsonl\n    typ: chat\nmicro_batch_siz: 4\n"
                   "learning_rate: fast\noptimizer: adamv\nnum_epochs: 0\nlora: {alpah: 8}\n");
  const Result result = harmonics("train " + config);
  CHECK(result.code == 78);
  for (const char* text :
       {"c.yaml:4:5: error:", "did you mean 'type'", "c.yaml:5:1: error: there is no key 'micro_batch_siz'",
        "did you mean 'micro_batch_size'", "c.yaml:6:16: error: 'learning_rate' is the string 'fast'",
        "did you mean 'adamw'", "c.yaml:8:13: error:", "did you mean 'alpha'"})
    CHECK(result.err.find(text) != std::string::npos);
}

TEST_CASE("train: what a whole configuration lacks is named") {
  const Folder folder;
  const std::string texts = folder.write("texts", "hello\n");
  const Result nothing = harmonics("train " + folder.write("a.yaml", "seed: 1\n"));
  CHECK(nothing.code == 78);
  CHECK(nothing.err.find("the configuration names no model") != std::string::npos);
  CHECK(nothing.err.find("the configuration has no 'datasets'") != std::string::npos);
  const Result twice = harmonics("sft " + folder.write("b.yaml", "model: GPT2\ndatasets: " + texts +
                                                                     "\nlr: 0.1\nlearning_rate: 0.1\noptim: lion\n"
                                                                     "adam_epsilon: 1e-8\n"));
  CHECK(twice.code == 78);
  CHECK(twice.err.find("'lr' and 'learning_rate' are names of one setting") != std::string::npos);
  CHECK(harmonics("train").code == 2);
  const Result set =
      harmonics("train " + folder.write("c.yaml", "model: GPT2\ndatasets: " + texts + "\n") + " --set learning_rat=1");
  CHECK(set.code == 2);
  CHECK(set.err.find("did you mean 'learning_rate'") != std::string::npos);
}

TEST_CASE("train: an error of --set names the flag and the key, and not the file's first line") {
  const Folder folder;
  const std::string config = folder.write("c.yaml", "model: GPT2\ndatasets: " + folder.write("texts", "hello\n") +
                                                        "\nseed: 1\nsave_best_limit: 1\nvalidation: 0.1\n");
  const Result value = harmonics("train " + config + " --set learning_rate=fast");
  CHECK(value.code == 2);
  CHECK(value.err.find("--set learning_rate=fast: 'learning_rate' is the string 'fast'; it must be a number above 0") !=
        std::string::npos);
  CHECK(value.err.find("c.yaml:1") == std::string::npos);
  const Result whole = harmonics("train " + config + " --set model_dsl=GPT2 --set tokenizer=bytes --set validation=0");
  CHECK(whole.err.find("'save_best_limit' needs validation losses") != std::string::npos);
  CHECK(whole.err.find("c.yaml:4:1") != std::string::npos);
  const Result both = harmonics("train " + config + " --set optimizer=lion --set adam_epsilon=1e-8");
  CHECK(both.err.find("--set adam_epsilon=1e-8: 'adam_epsilon' has no effect") != std::string::npos);
}

TEST_CASE("train: a setting that the optimizer does not have is refused") {
  const Folder folder;
  const Result result =
      harmonics("train " + folder.write("c.yaml", "model: GPT2\ndatasets: " + folder.write("texts", "hello\n") +
                                                      "\noptimizer: lion\nadam_epsilon: 1e-8\n"));
  CHECK(result.code == 78);
  CHECK(result.err.find("'adam_epsilon' has no effect: 'lion' has no such setting") != std::string::npos);
}

TEST_CASE("train: keys are listed with their other names") {
  const Result result = harmonics("train --keys");
  CHECK(result.code == 0);
  CHECK(result.out.find("micro_batch_size: a whole number of at least 1 (default: 8)") != std::string::npos);
  CHECK(result.out.find("also per_device_train_batch_size") != std::string::npos);
  const json::value keys = json::parse(harmonics("train --keys --json").out);
  CHECK(keys.at("keys").as_array().size() > 30);
}

namespace {

// Returns a configuration without the line of this key.
std::string without(std::string config, const std::string& key) {
  const size_t at = config.find("\n" + key + ":");
  REQUIRE(at != std::string::npos);
  return config.erase(at, config.find('\n', at + 1) - at);
}

// Returns the configuration of a model of 2 layers on the bytes of a repeating text.
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

  // Another run was killed while it wrote there. Numbers of processes are smaller.
  fs::create_directories(output);
  const std::string left = output + "/.harmonics-2000000000-0.tmp";
  std::ofstream(left) << "part";
  const Result run = harmonics("train " + config + " --json");
  REQUIRE(run.code == 0);
  CHECK_FALSE(fs::exists(left));
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

TEST_CASE("train: configurations of other trainers are read by their keys") {
  const Folder folder;
  const std::string base = folder / "base", model = base + "/model", data = "datasets: " + folder.write("t", "hello\n");
  REQUIRE(
      harmonics("train " + folder.write("base.yaml", tiny_configuration(folder, base)) +
                " --set max_steps=2 --quiet --set 'model_settings={num_layers: 1, hidden_size: 32, num_query_heads: "
                "2, max_position_embeddings: 256, vocab_size: 256}'")
          .code == 0);
  const std::string rows = folder.write("rows.json",
                                        R"([{"instruction": "add 1 to 1", "output": "2"},
                                            {"instruction": "add 1 to 2", "output": "3"}])");
  const Result run = harmonics(
      "train " +
      folder.write("c.yaml", "base_model: " + model +
                                 "\nload_in_4bit: true\nadapter: qlora\nlora_r: 4\n"
                                 "lora_alpha: 8\nlora_dropout: 0.25\nlora_target_linear: true\npeft_use_rslora: true\n"
                                 "datasets:\n  - {path: " +
                                 rows +
                                 ", type: alpaca, ds_type: json}\n"
                                 "train_on_inputs: true\nsequence_len: 256\nmicro_batch_size: 1\n"
                                 "max_steps: 1\noptim: adamw_bnb_8bit\nbf16: auto\nfp16: false\ntf32: false\n"
                                 "recompute_attention: true\nrecompute_ffn: true\nflash_attention: true\n"
                                 "wandb_project:\nwandb_watch: all\nchat_template: tokenizer_default\noutput_dir: " +
                                 (folder / "tuned") + "\n"));
  if (!fs::exists(model + "/config.json")) return;  // built without PCRE2
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(has(run.err, "note: flash_attention, wandb_watch, ds_type have no effect here\n"));
  CHECK(has(run.err, " stay f32: their rows are not whole blocks of 64 numbers, as nf4_64 needs"));  // 32 wide
  CHECK(fs::exists(folder / "tuned/adapter/adapter_config.json"));
  const std::string kept = read(folder / "tuned/config.yaml");
  for (const char* text :
       {"r: 4\n", "alpha: 8\n", "dropout: 0.25\n", "target_modules: [all-linear]\n", "use_rslora: true\n",
        "base: nf4_64\n", "type: instruction\n", "train_on_inputs: true\n", "recompute: \"attention,ffn\"\n"}) {
    INFO(text << kept);
    CHECK(has(kept, text));
  }
  CHECK(has(harmonics("train " + (folder / "tuned/config.yaml") + " --dry-run --quiet").out, " of them trained"));

  const auto refused = [&](const std::string& keys, const std::string& flags = "") {
    const Result r = harmonics("train " + folder.write("r.yaml", "model: GPT2\n" + data + "\n" + keys) + flags);
    CHECK(r.code != 0);
    return r.err;
  };
  CHECK(has(refused("lora_r: 4\n"), "r.yaml:3:1: error: 'lora_r' has no effect without an adapter\n"));
  CHECK(has(refused("lora_r: 4\n"), "add adapter: lora"));
  CHECK(has(refused("adapter: lora\nlora_r: 0\n"), "r.yaml:4:9: error: 'r' is the number 0"));
  CHECK(has(refused("adapter: lora\nlora_r: 4\nlora_rank: 4\n"), "'lora_r' and 'lora_rank' are names of one setting"));
  CHECK(has(refused("adapter: lora\nlora: {r: 8}\n"), "'lora' and 'adapter' are names of one setting"));
  CHECK(has(refused("lora: {r: 8}\nlora_alpha: 8\n"), "write lora: {alpha: …}"));
  CHECK(has(refused("adapter: prefix\n"), "'adapter' is the string 'prefix'; it must be lora or qlora"));
  CHECK(has(refused("bf16: true\nfp16: true\n"), "'bf16' and 'fp16' are names of one setting"));
  CHECK(has(refused("bf16: true\nprecision: fp32\n"), "'precision' and 'bf16' are names of one setting"));
  CHECK(has(refused("gradient_checkpointing: true\nrecompute_qkv: true\n"),
            "'gradient_checkpointing' and 'recompute_qkv' are names of one setting"));
  CHECK(has(refused("recompute_atention: true\n"), "there is no key 'recompute_atention'"));
  CHECK(has(refused("evals_per_epoch: 4\n"), "write eval_steps: the number of steps between validations"));
  CHECK(has(refused("", " --set lora_r=4"), "write --set 'lora={r: 4}'"));
  CHECK(has(refused("", " --set recompute_block=true"), "write --set 'recompute=block'"));
}

TEST_CASE("train: rates, memory and the norm of the gradients are shown and logged") {
  const Folder folder;
  const std::string output = folder / "out", config = folder.write("c.yaml", tiny_configuration(folder, output));
  const Result run = harmonics("train " + config + " --json --quiet --threads 1");
  REQUIRE(run.code == 0);
  const json::value result = json::parse(run.out);
  CHECK(result.at("tokens_per_second").to_number<double>() > 0);
  CHECK(result.at("peak_share").to_number<double>() > 0);
  CHECK(result.at("memory").at("most_bytes").as_int64() >= 1 << 20);
  CHECK(result.at("metrics").at("gradient_norm").to_number<double>() > 0);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/log.json"));
  std::istringstream lines(read(output + "/log.jsonl"));
  size_t steps = 0, validated = 0;
  for (std::string line; std::getline(lines, line);) {
    const json::value row = json::parse(line);
    CHECK(SchemaCheck::run(schema, row) == std::vector<std::string>{});
    if (row.at("kind") == "event") continue;
    CHECK(row.at("tokens_per_second").to_number<double>() > 0);
    CHECK(row.at("resident_bytes").as_int64() > 0);
    steps += row.at("kind") == "step" && row.at("metrics").as_object().contains("gradient_norm");
    validated += row.at("metrics").as_object().contains("val.perplexity");
  }
  CHECK(steps == 12);
  CHECK(validated == 3);
}

TEST_CASE("train: texts are sampled during the run, which keeps its bits") {
  const Folder folder;
  const std::string without = folder.write("a.yaml", tiny_configuration(folder, folder / "a")),
                    with = folder.write("b.yaml", tiny_configuration(folder, folder / "b") +
                                                      "samples: {prompts: ['the cat', 'the mat'], every: 20, "
                                                      "tokens: 8, temperature: 0}\n");
  REQUIRE(harmonics("train " + without + " --quiet").code == 0);
  const Result run = harmonics("train " + with);
  REQUIRE(run.code == 0);
  CHECK(run.err.find("step 20: the cat") != std::string::npos);
  CHECK(run.err.find("step 60: the mat") != std::string::npos);
  CHECK(run.err.find("no more texts") == std::string::npos);
  CHECK(read(folder / "a/weights.safetensors") == read(folder / "b/weights.safetensors"));
  const std::string log = read(folder / "b/log.jsonl");
  size_t sampled = 0;
  for (size_t at = 0; (at = log.find("\"event\":\"sample\"", at)) != std::string::npos; ++at) ++sampled;
  CHECK(sampled == 6);
  CHECK(harmonics("train " + (folder / "b/config.yaml") + " --dry-run --quiet").code == 0);
  const Result wrong = harmonics("train " + without + " --set 'samples={tokens: 0}'");
  CHECK(wrong.code == 2);
  CHECK(wrong.err.find("--set samples={tokens: 0}: ") != std::string::npos);
  CHECK(wrong.err.find("prompts") != std::string::npos);
}

TEST_CASE("train: the best checkpoints stay, and a loss guard is written back") {
  const Folder folder;
  const std::string output = folder / "out",
                    config = folder.write("c.yaml", tiny_configuration(folder, output) +
                                                        "save_best_limit: 1\nsave_total_limit: 1\n"
                                                        "loss_guard: {deviations: 8, then: checkpoint}\n");
  const Result run = harmonics("train " + config + " --json");
  REQUIRE(run.code == 0);
  const json::value result = json::parse(run.out);
  REQUIRE(result.at("best").as_array().size() == 1);
  const std::string best(result.at("best").at(0).at("file").as_string());
  CHECK(fs::exists(best));
  CHECK(fs::exists(output + "/checkpoints/best.json"));
  CHECK(run.err.find("best validation loss ") != std::string::npos);
  CHECK(result.at("skipped_batches").as_int64() == 0);
  CHECK(read(output + "/config.yaml").find("loss_guard: {deviations: 8, patience: 3, then: checkpoint}") !=
        std::string::npos);
  const Result without = harmonics("train " + config + " --set validation=0 --set eval_steps=60");
  CHECK(without.code == 78);
  CHECK(without.err.find("'save_best_limit' needs validation losses") != std::string::npos);
}

TEST_CASE("train: a dry run measures the time of a step and keeps nothing") {
  const Folder folder;
  const std::string output = folder / "out", config = folder.write("c.yaml", tiny_configuration(folder, output));
  const Result dry = harmonics("train " + config + " --dry-run");
  REQUIRE(dry.code == 0);
  CHECK(dry.out.find("a step, ") != std::string::npos);
  CHECK(dry.out.find("tokens/s") != std::string::npos);
  CHECK(dry.err.find("warmup_steps") == std::string::npos);
  CHECK_FALSE(fs::exists(output));
}

TEST_CASE("train: a note says that a run ends before the learning rate has risen") {
  const Folder folder;
  const std::string config = folder.write("c.yaml", tiny_configuration(folder, folder / "out"));
  const Result dry = harmonics("train " + config + " --dry-run --set warmup_steps=120");
  CHECK(has(dry.err, "a step, 1.78 passes over 135 rows\n"));
  CHECK(has(harmonics("train " + config + " --dry-run --set max_steps=60000").err, "a step, 1,778 passes over"));
  REQUIRE(dry.code == 0);
  CHECK(dry.err.find("note: warmup_steps is 120, but the run has 60 steps: its learning rate ends at 0.0015, not at "
                     "0.003\n") != std::string::npos);
}

TEST_CASE("run: batches that the loss guard leaves out can be run again") {
  const Folder folder;
  std::string rows = "x,y\n";
  for (int i = 0; i < 60; ++i) rows += std::to_string(i % 7) + "," + (i == 40 ? "90000" : std::to_string(i % 5)) + "\n";
  const std::string data = folder.write("d.csv", rows),
                    flow = folder.write("g.hmx",
                                        "harmonic g { producer x {1}; producer y {1}; layer o {1}; "
                                        "cycle (batch=1) { x -> o; o <-(mse)- y; } }"),
                    common = "run " + flow + " --no-keep --json --epochs 1 --lr 1e-4 ";
  const Result run = harmonics(common + "--producer 'x=" + data +
                               "?shuffle=0&as=number#x' --producer 'y=x?as=number#y' --skipped-batches " +
                               (folder / "out") + " --loss-guard deviations=6");
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(number(run.out, "skipped_batches") == 1);
  CHECK(run.err.find("skipped 1 batch") != std::string::npos);
  const std::string left = folder / "out/epoch-1-sample-41.safetensors";
  REQUIRE(fs::exists(left));
  const Result again = harmonics(common + "--producer 'x=" + left + "#x' --producer 'y=x#y'");
  CHECK(again.code == 0);
  CHECK(number(again.out, "loss") > 1e8);
  CHECK(harmonics(common + "--loss-guard deviatons=6").code == 2);
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

TEST_CASE("train: a run that is resumed at its end says so, and one of another size names what differs") {
  const Folder folder;
  const std::string config = folder.write("c.yaml", tiny_configuration(folder, folder / "out")) + " --set max_steps=6";
  REQUIRE(harmonics("train " + config).code == 0);
  const Result over = harmonics("train " + config + " --resume");
  CHECK(over.code == 0);
  CHECK(has(over.err,
            "note: the checkpoint is the end of the run: it has all 6 steps; to train further, raise "
            "max_steps or num_epochs\n"));
  const Result other =
      harmonics("train " + config + " --resume --set 'model_settings={num_layers: 2, hidden_size: 16, " +
                "num_query_heads: 2, max_position_embeddings: 16, vocab_size: 200}'" +
                " --set sequence_len=16 --set tokenizer=characters");
  CHECK(other.code != 0);
  CHECK(other.err.find("the model has other sizes than when the checkpoint was written") != std::string::npos);
  const Result more = harmonics("train " + config + " --resume --set max_steps=7");
  CHECK(more.err.find("the end of the run") == std::string::npos);
}

TEST_CASE("train: a run of fewer steps than its checkpoint is refused, and its configuration stays") {
  const Folder folder;
  const std::string output = folder / "out", tiny = tiny_configuration(folder, output),
                    config = "train " + folder.write("c.yaml", without(tiny, "max_steps")) + " --set eval_steps=9 ";
  REQUIRE(harmonics(config + "--quiet --set max_steps=6").code == 0);
  const std::string before = read(output + "/config.yaml");
  REQUIRE(has(before, "max_steps: 6\n"));
  const Result fewer = harmonics(config + "--resume --set max_steps=3");
  CHECK(fewer.code == 2);
  CHECK(has(fewer.err,
            "error: the checkpoint is already at step 6, but max_steps is 3\n"
            "help: to train further, raise it: --set max_steps=12\n"
            "help: to start again, give another output_dir\n"));
  const Result epochs = harmonics(config + "--resume --set num_epochs=0.01");
  CHECK(epochs.code == 2);
  CHECK(has(epochs.err, "error: the checkpoint is already at step 6, but num_epochs: 0.01 gives 1 step\n"));
  CHECK(harmonics(config + "--resume --set max_steps=9 --set 'model_settings={num_layers: 2, hidden_size: 16, "
                           "num_query_heads: 2, max_position_embeddings: 32, vocab_size: 256}'")
            .code != 0);
  CHECK(read(output + "/config.yaml") == before);
  CHECK(harmonics(config + "--resume --quiet --set max_steps=9").code == 0);
  CHECK(has(read(output + "/config.yaml"), "max_steps: 9\n"));
}

TEST_CASE("train: a resumed run with more steps continues with the rows that follow") {
  const Folder folder;
  const auto run = [&](const std::string& output, const std::string& more) {
    const std::string tiny = tiny_configuration(folder, folder / output);
    const Result r = harmonics("train " + folder.write("c.yaml", without(tiny, "eval_steps")) +
                               " --set lr_scheduler=constant " + more);
    INFO(r.err);
    REQUIRE(r.code == 0);
    return r.err;
  };
  run("whole", "--set max_steps=10");
  run("parts", "--set max_steps=4");
  const std::string resumed = run("parts", "--set max_steps=10 --resume");
  CHECK_FALSE(has(resumed, "when the checkpoint was written"));
  CHECK_FALSE(has(resumed, "the flow's text has changed"));
  CHECK(read(folder / "whole/weights.safetensors") == read(folder / "parts/weights.safetensors"));
}

TEST_CASE("train: a resumed run keeps the numbers of its characters") {
  const Folder folder;
  const std::string output = folder / "out", config = "train " +
                                                      folder.write("c.yaml", tiny_configuration(folder, output)) +
                                                      " --quiet --set tokenizer=characters --set max_steps=";
  REQUIRE(harmonics(config + "2").code == 0);
  const std::string before = read(output + "/tokenizer.json");
  std::ofstream(folder / "text.txt", std::ios::app) << std::string(400, 'b') << "the cat sat on the mat. ";
  const Result anew = harmonics(config + "4");
  CHECK(anew.code == 2);
  CHECK(has(anew.err,
            "holds the checkpoints of a run\nhelp: add --resume to continue that run, or give another "
            "output_dir\n"));
  const Result changed = harmonics(config + "4 --resume");
  CHECK(read(output + "/tokenizer.json") == before);
  CHECK(changed.code == 0);
  REQUIRE(harmonics(config + "4 --set output_dir=" + (folder / "other")).code == 0);
  CHECK(read(folder / "other/tokenizer.json") != before);
}

TEST_CASE("train: rows are at most as long as the context of the models, unless the configuration says so") {
  const Folder folder;
  const std::string tiny = without(tiny_configuration(folder, folder / "out"), "sequence_len"),
                    config = "train " + folder.write("c.yaml", tiny) + " --set max_steps=2";
  const Result usual = harmonics(config);
  INFO(usual.err);
  REQUIRE(usual.code == 0);
  CHECK(has(usual.err, "note: sequence_len is 32, the context of 'GPT2'\n"));
  CHECK(has(usual.err, "2 steps of 4 rows of 32 tokens"));
  CHECK(has(read(folder / "out/config.yaml"), "sequence_len: 32\n"));
  const Result tuned =
      harmonics("train " + folder.write("d.yaml", without(tiny, "model_settings")) +
                " --set max_steps=2 --set output_dir=" + (folder / "tuned") + " --model " + (folder / "out/model"));
  if (fs::exists(folder / "out/model/config.json")) {  // not without PCRE2
    CHECK(has(harmonics("generate " + (folder / "out") + " the").err,
              "and so no model\nhelp: did you mean '" + (folder / "out/model") + "'?\n"));
    INFO(tuned.err);
    CHECK(tuned.code == 0);
    CHECK(has(tuned.err, "note: sequence_len is 32, the context of '" + (folder / "out/model") + "'\n"));
  }
  const Result longer = harmonics("train " + folder.write("e.yaml", tiny + "sequence_len: 64\nlora: {alpah: 8}\n"));
  CHECK(longer.code == 78);
  CHECK(has(longer.err, ":1: error: 'sequence_len' is 64, but the context of 'GPT2' is 32\n"));
  CHECK(has(longer.err, "help: give at most 32\n"));
  CHECK(has(longer.err, "did you mean 'alpha'"));
  CHECK_FALSE(has(longer.err, "note: sequence_len"));
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
