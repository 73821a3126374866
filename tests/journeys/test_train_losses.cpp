// harmonics train: preferences, distillation, streams, special tokens and replays, and exports of trained models.
#include <cmath>

#include <boost/json.hpp>

#include "tests/journeys/background.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/sending.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

// Trains a model briefly on the bytes of one sentence; its folder is `output`/model.
std::string trained_on_a_sentence(const Folder& folder, const std::string& output) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the cat sat on the mat. ";
  const std::string config = folder.write(
      "base.yaml",
      "model_dsl: GPT2\nmodel_settings: {num_layers: 2, hidden_size: 32, num_query_heads: 2, "
      "max_position_embeddings: 64, vocab_size: 256, dropout: 0}\ntokenizer: bytes\ndatasets: " +
          folder.write("text.txt", text) +
          "\nsequence_len: 32\nmicro_batch_size: 4\nmax_steps: 40\nlearning_rate: 3e-3\noutput_dir: " + output + "\n");
  const Result run = harmonics("train " + config + " --quiet");
  INFO(run.err);
  REQUIRE(run.code == 0);
  return output + "/model";
}

std::vector<double> logged_losses(const std::string& output) {
  std::vector<double> losses;
  std::istringstream lines(read(output + "/log.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const json::value row = json::parse(line);
    if (row.at("kind") == "step") losses.push_back(row.at("metrics").at("loss").to_number<double>());
  }
  return losses;
}

std::string preferences_of_cats(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += "{\"prompt\": \"cat " + std::to_string(i) + R"( ", "chosen": "purrs.", "rejected": "barks!!"})" + "\n";
  return lines;
}

}  // namespace

TEST_CASE("train: a model learns to prefer chosen answers") {
  const Folder folder;
  const std::string base = trained_on_a_sentence(folder, folder / "base"), output = folder / "preferring",
                    data = folder.write("pairs.jsonl", preferences_of_cats(40)),
                    config = folder.write("dpo.yaml", "model: " + base + "\ndatasets: " + data +
                                                          "\nvalidation: 0.2\ndpo: {beta: 0.5}\nsequence_len: 32\n"
                                                          "micro_batch_size: 4\nmax_steps: 60\nlearning_rate: 3e-3\n"
                                                          "lr_scheduler: constant\nlogging_steps: 1\noutput_dir: " +
                                                          output + "\n");
  const Result run = harmonics("train " + config);
  INFO(run.err);
  REQUIRE(run.code == 0);
  const std::vector<double> losses = logged_losses(output);
  REQUIRE(losses.size() == 60);
  CHECK(losses.front() == Approx(std::log(2.0)).epsilon(1e-3));  // before the first step, model and reference are equal
  CHECK(losses.back() < 0.45);                                   // over all steps
  CHECK(run.err.find("perplexity") == std::string::npos);
  CHECK(run.err.find("accuracy") == std::string::npos);
  CHECK(run.err.find("  rewards/accuracies ") != std::string::npos);
  CHECK(run.err.find(", rewards/margins ") != std::string::npos);  // in the validation line
  CHECK(fs::exists(output + "/model/model.safetensors"));
  CHECK(read(output + "/weights.safetensors").find("reference.") == std::string::npos);
  CHECK(read(output + "/config.yaml").find("dpo:\n  beta: 0.5\n  loss: sigmoid\n") != std::string::npos);
  CHECK(harmonics("train " + output + "/config.yaml --dry-run --quiet").code == 0);

  const Result texts = harmonics("train " + config + " --set datasets=" + folder.write("t.txt", std::string(300, 'x')));
  CHECK(texts.code != 0);
  CHECK(texts.err.find("'dpo' learns from preferences, but '") != std::string::npos);
  const Result packed = harmonics("train " + config + " --set sample_packing=true");
  CHECK(packed.code == 78);
  CHECK(packed.err.find("each pair of answers has its own row") != std::string::npos);
  const Result plain = harmonics(
      "train " + folder.write("plain.yaml", "model: " + base + "\ndatasets: " + data + "\nsequence_len: 32\n"));
  CHECK(plain.code == 2);
  CHECK(plain.err.find("add dpo: {beta: 0.1} to learn them") != std::string::npos);
}

TEST_CASE("train: the rewards of preferences are metrics") {
  const Folder folder;
  const std::string base = trained_on_a_sentence(folder, folder / "base"), output = folder / "preferring",
                    config = folder.write("dpo.yaml", "model: " + base + "\ndatasets: " +
                                                          folder.write("pairs.jsonl", preferences_of_cats(40)) +
                                                          "\nvalidation: 0.2\ndpo: {beta: 0.5}\nsequence_len: 32\n"
                                                          "micro_batch_size: 4\nmax_steps: 60\nlearning_rate: 3e-3\n"
                                                          "lr_scheduler: constant\nlogging_steps: 1\noutput_dir: " +
                                                          output + "\n");
  const Result run = harmonics("train " + config + " --json --set 'stop_when=rewards/margins>0.3'");
  INFO(run.err);
  REQUIRE(run.code == 0);
  const json::value result = json::parse(run.out);
  const json::object& metrics = result.at("metrics").as_object();
  for (const char* name : {"chosen", "rejected", "accuracies", "margins"})
    CHECK(metrics.at(std::string("rewards/") + name).is_number());
  const double margins = metrics.at("rewards/margins").to_number<double>();
  CHECK(margins > 0.3);
  CHECK(result.at("steps").to_number<int>() < 60);
  CHECK(margins ==
        Approx(metrics.at("rewards/chosen").to_number<double>() - metrics.at("rewards/rejected").to_number<double>())
            .epsilon(1e-4));
  CHECK(metrics.contains("scores.rewards/margins"));
  CHECK(metrics.contains("val.rewards/accuracies"));
  std::istringstream lines(read(output + "/log.jsonl"));
  int logged = 0;
  for (std::string line; std::getline(lines, line);) {
    const json::value row = json::parse(line);
    if (row.at("kind") != "step") continue;
    if (logged++ == 0) CHECK(row.at("metrics").at("rewards/margins").to_number<double>() == Approx(0).margin(1e-3));
  }
  CHECK(logged > 1);
  const Result unknown =
      harmonics("train " + config + " --set output_dir=" + (folder / "other") + " --set 'stop_when=rewards/margin>1'");
  CHECK(unknown.code != 0);
  CHECK(unknown.err.find("rewards/margins") != std::string::npos);  // in the list of metrics
}

TEST_CASE("train: a small model learns from a teacher") {
  const Folder folder;
  const std::string teacher = trained_on_a_sentence(folder, folder / "base"), output = folder / "taught",
                    config = folder.write(
                        "taught.yaml",
                        "model_dsl: GPT2\nmodel_settings: {num_layers: 1, hidden_size: 16, num_query_heads: 2, "
                        "max_position_embeddings: 32, vocab_size: 256, dropout: 0}\ntokenizer: bytes\ndatasets: " +
                            (folder / "text.txt") + "\ndistillation: {teacher: " + teacher +
                            ", temperature: 2, share: 0.5}\nsequence_len: 32\nmicro_batch_size: 4\nmax_steps: 40\n"
                            "learning_rate: 1e-2\nlogging_steps: 1\noutput_dir: " +
                            output + "\n");
  const Result run = harmonics("train " + config + " --quiet");
  INFO(run.err);
  REQUIRE(run.code == 0);
  const std::vector<double> losses = logged_losses(output);
  REQUIRE(losses.size() == 40);
  CHECK(losses.back() < losses.front() * 0.8);  // over all steps
  CHECK(read(output + "/weights.safetensors").find("teacher.") == std::string::npos);
  const Result other = harmonics("train " + config + " --set output_dir=" + (folder / "other") +
                                 " --set 'model_settings={vocab_size: 300, num_layers: 1, hidden_size: 16, "
                                 "num_query_heads: 2, max_position_embeddings: 32}'");
  CHECK(other.code != 0);
  CHECK(other.err.find("both models need the same tokenizer") != std::string::npos);
  const Result both = harmonics("train " + config + " --set dpo={}");
  CHECK(both.code == 78);
  CHECK(both.err.find("'dpo' and 'distillation' exclude each other") != std::string::npos);
}

namespace {

// Runs `train` with the output of `send` on its standard input.
Result train_on_input(const Folder& folder, const std::string& lines, const std::string& arguments) {
  const std::string command = "cat '" + folder.write("sent", lines) + "' | timeout 100 '" + kProgram + "' train " +
                              arguments + " >'" + (folder / "said.out") + "' 2>'" + (folder / "said.err") + "'";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(folder / "said.out"), read(folder / "said.err")};
}

// Returns two rows of 32 tokens and their next tokens, in the format of the loss guard's batches.
std::string batch_of_bytes() {
  std::string header =
      R"({"next":{"dtype":"I32","shape":[2,32],"data_offsets":[0,256]},"tokens":{"dtype":"I32","shape":[2,32],)"
      R"("data_offsets":[256,512]}})";
  header += std::string((8 - header.size() % 8) % 8, ' ');
  std::string file;
  for (size_t i = 0, n = header.size(); i < 8; ++i, n >>= 8) file += static_cast<char>(n & 0xFF);
  file += header;
  for (int tensor = 1; tensor >= 0; --tensor)
    for (int i = 0; i < 64; ++i) {
      file += static_cast<char>('a' + (i + tensor) % 26);
      file += std::string(3, '\0');
    }
  return file;
}

const std::string kTinyModel =
    "model_dsl: GPT2\nmodel_settings: {num_layers: 1, hidden_size: 16, num_query_heads: 2, max_position_embeddings: "
    "32, vocab_size: 256, dropout: 0}\ntokenizer: bytes\nsequence_len: 32\nmicro_batch_size: 4\nlearning_rate: "
    "1e-2\nlogging_steps: 1\n";

}  // namespace

TEST_CASE("train: a model learns texts that arrive, until they end") {
  const Folder folder;
  const std::string output = folder / "live",
                    config = folder.write(
                        "live.yaml",
                        kTinyModel + "datasets: 'stdin:'\nlr_scheduler: constant\noutput_dir: " + output + "\n");
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mat.\n";
  const Result run = train_on_input(folder, text, config);
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.err.find("as they arrive: 128 tokens a step") != std::string::npos);
  CHECK(run.err.find("'stdin:' is read once: its run cannot be resumed") != std::string::npos);
  const std::vector<double> losses = logged_losses(output);
  REQUIRE(losses.size() > 30);
  CHECK(losses.back() < losses.front() * 0.8);  // over all steps
  CHECK(fs::exists(output + "/model/config.json"));
  const Result lines = train_on_input(
      folder, "{\"prompt\": \"1+1=\", \"completion\": \"2\"}\n{\"prompt\": \"2+1=\", \"completion\": \"3\"}\n",
      config + " --quiet --set micro_batch_size=2 --set max_steps=1 --set output_dir=" + (folder / "lines") +
          " --weights " + output + "/weights.safetensors");
  INFO(lines.err);
  CHECK(lines.code == 0);
  CHECK(harmonics("train " + config + " --resume").code != 0);
  const Result endless = harmonics("train " + config + " --set lr_scheduler=cosine");
  CHECK(endless.code == 2);
  CHECK(endless.err.find("give max_steps, or lr_scheduler: constant") != std::string::npos);
  const Result dry = harmonics("train " + config + " --dry-run");
  CHECK(dry.code == 2);
  CHECK(dry.err.find("'stdin:' is a stream") != std::string::npos);
}

TEST_CASE("train: errors of both models of a run are not shown in a text that is in no file") {
  const Folder folder;
  const std::string model = trained_on_a_sentence(folder, folder / "model"),
                    pairs = folder.write("pairs.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})");
  const Result r = harmonics("train " + folder.write("c.yaml", "model: " + model +
                                                                   "\ntokenizer: " + std::string(HARMONICS_SOURCE_DIR) +
                                                                   "/tests/parity/golden/folders/tokenizers/"
                                                                   "byte_pairs.json\ndatasets: " +
                                                                   pairs + "\ndpo: {beta: 0.1}\nmax_steps: 1\n" +
                                                                   "output_dir: " + (folder / "out") + "\n"));
  CHECK(r.code == 78);
  CHECK(has(r.err, "error: the stream has "));
  CHECK_FALSE(has(r.err, "train.hmx"));
}

TEST_CASE("train: a run says that it waits for texts, once it listens") {
  const Folder folder;
  const std::string socket = folder / "socket",
                    config = folder.write("live.yaml",
                                          kTinyModel + "datasets: unix:" + socket +
                                              "\nlr_scheduler: constant\noutput_dir: " + (folder / "live") + "\n");
  Background run(folder, "train " + config);
  const std::string note = "note: waiting for texts of unix:" + socket + "\n";
  CHECK(run.await([&] { return has(run.errors(), note); }));
  std::string text;
  for (int i = 0; i < 30; ++i) text += "the cat sat on the mat.\n";
  { Connected(socket).send(text); }
  const Result end = run.end();
  CHECK(end.code == 0);
  CHECK(end.err.find(note) == end.err.rfind(note));
  const Result deaf = harmonics("train " + config + " --set datasets=unix:" + (folder / "missing/socket"));
  CHECK(deaf.code != 0);
  CHECK_FALSE(has(deaf.err, "waiting for texts"));
}

TEST_CASE("train: each validation takes the next rows of a stream") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "the cat sat on the mat.\n";
  const std::string file = folder.write("text.txt", text),
                    config = folder.write("c.yaml", kTinyModel + "datasets: " + file +
                                                        "\nvalidation_datasets: 'stdin:'\neval_steps: 2\n"
                                                        "max_steps: 6\nlr_scheduler: constant\n"),
                    counted = config + " --set eval_samples=3";
  const auto into = [&](const std::string& output) { return " --set output_dir=" + (folder / output); };
  const auto validations = [&](const std::string& output) {
    const std::string log = read(folder / output + "/log.jsonl");
    size_t count = 0;
    for (size_t at = 0; (at = log.find("\"val.perplexity\"", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  const Result endless = train_on_input(folder, text, config + into("a"));
  CHECK(endless.code == 78);
  CHECK(endless.err.find("c.yaml:9:1: error: 'stdin:' is a stream, of which each validation needs a number of rows") !=
        std::string::npos);
  CHECK(endless.err.find("give eval_samples: 100") != std::string::npos);
  const Result run = train_on_input(folder, text, counted + into("b"));
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.err.find("validation on the next 3 rows every 2 steps") != std::string::npos);
  CHECK(validations("b") == 3);
  CHECK(read(folder / "b/config.yaml").find("eval_samples: 3\n") != std::string::npos);
  const Result ends = train_on_input(folder, text.substr(0, 4 * 24), counted + into("c"));
  CHECK(ends.code == 0);
  CHECK(ends.err.find("the validation data ended; there is no validation from step 4 on") != std::string::npos);
  CHECK(validations("c") == 1);
  const Result both =
      train_on_input(folder, text, counted + into("d") + " --set 'datasets=file:" + file + "?follow=true'");
  CHECK(both.code == 0);
  CHECK(both.err.find("validation on the next 3 rows every 2 steps") != std::string::npos);
  CHECK(validations("d") == 3);
  CHECK(harmonics("train " + counted + into("e") + " --dry-run --quiet").code == 0);
  const Result same = harmonics("train " + counted + into("f") + " --set \"datasets='stdin:'\"");
  CHECK(same.code != 0);
  CHECK(same.err.find("'stdin:' is the stream that the run learns from") != std::string::npos);
  const Result first = harmonics("train " + counted + into("g") + " --set validation_datasets=" + file);
  CHECK(first.err.find("validation on 3 rows every 2 steps") != std::string::npos);
  CHECK(validations("g") == 3);
}

TEST_CASE("train: special tokens are added to the model and its tokenizer") {
  const Folder folder;
  const std::string base = trained_on_a_sentence(folder, folder / "base"), output = folder / "added",
                    data = folder.write("t.jsonl", "{\"prompt\": \"the \", \"completion\": \"cat<stop>\"}\n");
  const std::string config = folder.write(
      "added.yaml", "model: " + base + "\nspecial_tokens: {eos_token: <stop>, additional: [<other>]}\ndatasets: " +
                        data + "\nsequence_len: 32\nmax_steps: 2\nlearning_rate: 1e-4\noutput_dir: " + output + "\n");
  CHECK(harmonics("train " + config + " --dry-run --quiet").code == 0);
  CHECK_FALSE(fs::exists(output));
  const Result run = harmonics("train " + config);
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(run.err.find("258 rows instead of 256") != std::string::npos);
  const json::value written = json::parse(read(output + "/model/config.json"));
  CHECK(written.at("vocab_size") == 258);
  const Result ids = harmonics("tokenize " + output + "/model --special 'a<stop>'");
  CHECK(ids.out.find("257") != std::string::npos);
  CHECK(harmonics("generate " + output + "/model 'the ' --max-tokens 2 --temperature 0").code == 0);
  CHECK(read(output + "/config.yaml").find("special_tokens:\n  eos_token: \"<stop>\"\n") != std::string::npos);
}

TEST_CASE("export: a folder has its weights in files of a size, and further tokens") {
  const Folder folder;
  const std::string base = trained_on_a_sentence(folder, folder / "base"), to = folder / "parts/";
  const Result parts = harmonics("export " + base + " " + to + " --shard-size 20000 --add-token '<a>'");
  INFO(parts.err);
  REQUIRE(parts.code == 0);
  CHECK(fs::exists(to + "model.safetensors.index.json"));
  CHECK_FALSE(fs::exists(to + "model.safetensors"));
  CHECK(parts.err.find("257 rows instead of 256") != std::string::npos);
  CHECK(harmonics("generate " + to + " 'the ' --max-tokens 2").code == 0);
  const Result twice = harmonics("export " + to + " " + (folder / "twice/") + " --add-token '<a>'");
  CHECK(twice.code == 0);
  CHECK(twice.err.find("--add-token <a>: the tokenizer already has this token") != std::string::npos);
  CHECK(harmonics("export " + to + " " + (folder / "wrong/") + " --add-token eos_tokn=x").code == 2);
  CHECK_FALSE(fs::exists(folder / "wrong"));
  CHECK(harmonics("export " + base + " " + to).code == 0);
  CHECK(fs::exists(to + "model.safetensors"));
  CHECK_FALSE(fs::exists(to + "model.safetensors.index.json"));
  const Result file = harmonics("export " + base + " " + (folder / "m.gguf") + " --shard-size 1M");
  CHECK(file.code == 2);
  CHECK(file.err.find("--shard-size is for Hugging Face folders") != std::string::npos);
}

TEST_CASE("quantize: a described model takes its weights from a folder or from what a flow saved") {
  const Folder folder;
  const std::string base = trained_on_a_sentence(folder, folder / "base"), model = base + "/model.ndsl",
                    to = folder / "small.gguf";
  REQUIRE(harmonics("quantize " + model + " " + to + " --weights " + (folder / "base/weights.safetensors")).code == 0);
  CHECK(harmonics("generate " + to + " --tokenizer " + base + "/tokenizer.json 'the ' --max-tokens 2").code == 0);
  CHECK_FALSE(fs::exists(to + ".described.gguf"));
  const Result without = harmonics("quantize " + model + " " + to);
  CHECK(without.code == 2);
  CHECK(without.err.find("describes a model and has no weights") != std::string::npos);
}

TEST_CASE("train: a batch that was left out is replayed with the newest weights, and the run is unchanged") {
  const Folder folder;
  const std::string output = folder / "run";
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the cat sat on the mat. ";
  const std::string config = folder.write(
      "c.yaml", kTinyModel + "datasets: " + folder.write("text.txt", text) +
                    "\nmax_steps: 10\nsave_steps: 5\nlr_scheduler: constant\noutput_dir: " + output + "\n");
  REQUIRE(harmonics("train " + config + " --quiet").code == 0);
  const std::string before = read(output + "/log.jsonl"), batch = folder.write("batch.safetensors", batch_of_bytes());
  const Result again = harmonics("train " + config + " --replay " + batch + " --json");
  INFO(again.err);
  REQUIRE(again.code == 0);
  CHECK(number(again.out, "steps") == 1);
  CHECK(number(again.out, "samples") == 2);
  CHECK(number(again.out, "loss") > 0);
  CHECK(again.err.find("one step with the weights of " + output + "/checkpoints/") != std::string::npos);
  CHECK(read(output + "/log.jsonl") == before);
  const Result wrong = harmonics("train " + config + " --replay " + output + "/weights.safetensors");
  CHECK(wrong.code != 0);
  CHECK(wrong.err.find("is not a batch of a language model") != std::string::npos);
  const Result both = harmonics("train " + config + " --replay " + batch + " --resume");
  CHECK(both.code == 2);
  CHECK(both.err.find("--resume has no effect beside --replay") != std::string::npos);
}

TEST_CASE("run: token fields of files need no type where a model reads them") {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 8; ++i) {
    lines += "{\"tokens\": [";
    for (int t = 0; t < 16; ++t) lines += (t ? "," : "") + std::to_string((i + t) % 50);
    lines += "]}\n";
  }
  const std::string model =
                        "model(\"GPT2\", set=\"num_layers=1, hidden_size=16, num_query_heads=2, vocab_size=50, "
                        "max_position_embeddings=16\")",
                    flow = folder.write(
                        "t.hmx", "harmonic t { producer tokens; layer scores; cycle (batch=4) { tokens -(" + model +
                                     ")-> scores; scores <-(next_token)- tokens; } }"),
                    data = folder.write("t.jsonl", lines);
  CHECK(harmonics("run " + flow + " --no-keep --epochs 1 --producer 'tokens=" + data + "#tokens'").code == 0);
  std::string wrong = lines;
  wrong.replace(wrong.find("[0,"), 3, "[0.5,");
  const Result refused = harmonics(
      "run " + flow + " --no-keep --epochs 1 --producer 'tokens=" + folder.write("w.jsonl", wrong) + "#tokens'");
  CHECK(refused.code != 0);
  CHECK(refused.err.find("which is not an index") != std::string::npos);
  const std::string declared =
      folder.write("d.hmx", "harmonic d { producer tokens {16}; producer next {16}; layer scores; cycle { tokens -(" +
                                model + ")-> scores; scores <-(cross_entropy)- next; } }");
  CHECK(harmonics("explain " + declared).code == 0);
}

TEST_CASE("export: folders of known architectures are written in several files, and read again") {
  if (harmonics("list importers").out.find("huggingface") == std::string::npos) return;  // built without PCRE2
  const Folder folder;
  const std::string from = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/folders/llama3",
                    whole = folder / "whole/", parts = folder / "parts/", again = folder / "again/";
  REQUIRE(harmonics("export " + from + " " + whole).code == 0);
  REQUIRE(harmonics("export " + from + " " + parts + " --shard-size 4096").code == 0);
  CHECK_FALSE(fs::exists(parts + "model.safetensors"));
  const json::value index = json::parse(read(parts + "model.safetensors.index.json"));
  CHECK(index.at("metadata").at("total_size").to_number<int64_t>() > 4096);
  for (const auto& [tensor, file] : index.at("weight_map").as_object()) {
    INFO(std::string(tensor));
    CHECK(fs::exists(parts + std::string(file.as_string())));
  }
  REQUIRE(harmonics("export " + parts + " " + again).code == 0);
  CHECK(read(again + "model.safetensors") == read(whole + "model.safetensors"));
}
