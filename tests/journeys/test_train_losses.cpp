// harmonics train: preferences and distillation.
#include <boost/json.hpp>

#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

// A model of the bytes of one sentence, trained briefly: its folder is `output`/model.
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
  for (int i = 0; i < count; ++i) {
    const char* place[] = {"mat", "cat", "the", "sat"};
    lines += std::string(R"({"prompt": ")") + place[i % 4] + R"( ", "chosen": "purrs.", "rejected": "barks!!"})" + "\n";
  }
  return lines;
}

}  // namespace

TEST_CASE("train: a model learns to prefer chosen answers") {
  const Folder folder;
  const std::string base = trained_on_a_sentence(folder, folder / "base"), output = folder / "preferring",
                    data = folder.write("pairs.jsonl", preferences_of_cats(16)),
                    config = folder.write("dpo.yaml", "model: " + base + "\ndatasets: " + data +
                                                          "\nvalidation: 0.2\ndpo: {beta: 0.5}\nsequence_len: 32\n"
                                                          "micro_batch_size: 4\nmax_steps: 20\nlearning_rate: 1e-3\n"
                                                          "lr_scheduler: constant\nlogging_steps: 1\noutput_dir: " +
                                                          output + "\n");
  const Result run = harmonics("train " + config);
  INFO(run.err);
  REQUIRE(run.code == 0);
  const std::vector<double> losses = logged_losses(output);
  REQUIRE(losses.size() == 20);
  CHECK(losses.front() == Approx(std::log(2.0)).epsilon(1e-3));  // the model is the reference before the first step
  CHECK(losses.back() < 0.3);
  CHECK(run.err.find("perplexity") == std::string::npos);
  CHECK(fs::exists(output + "/model/model.safetensors"));
  CHECK(read(output + "/weights.safetensors").find("reference.") == std::string::npos);
  CHECK(read(output + "/config.yaml").find("dpo:\n  beta: 0.5\n  loss: sigmoid\n") != std::string::npos);
  CHECK(harmonics("train " + output + "/config.yaml --dry-run --quiet").code == 0);

  const Result texts = harmonics("train " + config + " --set datasets=" + folder.write("t.txt", std::string(300, 'x')));
  CHECK(texts.code != 0);
  CHECK(texts.err.find("'dpo' learns from preferences, and '") != std::string::npos);
  const Result packed = harmonics("train " + config + " --set sample_packing=true");
  CHECK(packed.code == 78);
  CHECK(packed.err.find("each pair of answers has a row of its own") != std::string::npos);
  const Result plain = harmonics(
      "train " + folder.write("plain.yaml", "model: " + base + "\ndatasets: " + data + "\nsequence_len: 32\n"));
  CHECK(plain.code == 2);
  CHECK(plain.err.find("add dpo: {beta: 0.1} to learn them") != std::string::npos);
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
  CHECK(losses.back() < losses.front() / 2);
  CHECK(read(output + "/weights.safetensors").find("teacher.") == std::string::npos);
  const Result other = harmonics("train " + config +
                                 " --set 'model_settings={vocab_size: 300, num_layers: 1, "
                                 "hidden_size: 16, num_query_heads: 2, max_position_embeddings: "
                                 "32}'");
  CHECK(other.code != 0);
  CHECK(other.err.find("both models need the same tokenizer") != std::string::npos);
  const Result both = harmonics("train " + config + " --set dpo={}");
  CHECK(both.code == 78);
  CHECK(both.err.find("'dpo' and 'distillation' exclude each other") != std::string::npos);
}
