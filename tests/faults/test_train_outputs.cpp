// Results of `harmonics train` are never lost: full disks, kills, non-finite numbers.
#include "tests/faults/faulted.hpp"

using namespace faults;

namespace {

// A short training on the bytes of a text: 6 steps, a checkpoint every 2.
class SmallTraining {
 public:
  SmallTraining(const Folder& f, const std::string& name, const std::string& model, const std::string& more)
      : output_(f / name) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the cat sat on mat " + std::to_string(i % 7) + ". ";
    f.write("text.txt", text);
    config_ = f.write(name + ".yaml", model + more + "tokenizer: bytes\ndatasets: " + (f / "text.txt") +
                                          "\nsequence_len: 16\nmicro_batch_size: 2\nmax_steps: 6\nsave_steps: 2\n"
                                          "output_dir: " +
                                          output_ + "\n");
  }

  std::string command(const std::string& more = "") const { return "train " + config_ + " --threads 1 " + more; }
  std::string output() const { return output_; }
  std::string weights() const { return output_ + "/weights.safetensors"; }

 private:
  std::string output_, config_;
};

const std::string kTinyModel =
    "model_dsl: GPT2\nmodel_settings: {num_layers: 1, hidden_size: 16, num_query_heads: 2, max_position_embeddings: "
    "16, vocab_size: 256}\n";

}  // namespace

TEST_CASE("train: a disk that is full from any call on loses no weights") {
  Folder f;
  const std::string made = f / "base/";
  REQUIRE(journeys::harmonics("export GPT2 " + made +
                              " --quiet --set num_layers=1 --set hidden_size=16 --set num_query_heads=2 --set "
                              "max_position_embeddings=16 --set vocab_size=256")
              .code == 0);
  const bool adapter = GENERATE(false, true);
  const SmallTraining train = adapter ? SmallTraining(f, "out", "model: " + made + "\n", "lora: {r: 2}\n")
                                      : SmallTraining(f, "out", kTinyModel, "");
  REQUIRE(journeys::harmonics(train.command("--quiet")).code == 0);
  const std::string learned = read(train.weights());
  fs::create_directory(f / "elsewhere");
  const std::string in = "cd '" + (f / "elsewhere") + "' && ";
  size_t kept = 0;
  const size_t calls = at_every_call({"ENOSPC", 0, train.output() + "/*", true, "write"}, [&](const Fault& fault) {
    fs::remove_all(train.output());
    const Result r = harmonics_in(in + variables(f, fault), train.command());
    if (struck_in(f).number == 0) return false;
    CHECK(r.code != 0);
    CHECK(has(r.err, "No space left on device"));
    if (!has(r.err, "epoch 1")) return true;  // rejected before the first step
    const std::string other = f / "elsewhere/weights.unsaved.safetensors";
    const bool unsaved = has(r.err, "the weights are in ");
    std::string found = fs::exists(train.weights()) ? read(train.weights()) : unsaved ? read(other) : "";
    if (found.empty()) {  // the checkpoint of the last step has the weights
      CHECK(journeys::harmonics(train.command("--quiet --resume")).code == 0);
      found = read(train.weights());
    }
    CHECK((found == learned));
    ++kept;
    if (unsaved) fs::remove(other);
    return true;
  });
  CHECK(calls > 6);
  CHECK(kept > 3);
}

TEST_CASE("train: a run killed at any call resumes to the same weights") {
  Folder f;
  const SmallTraining train(f, "out", kTinyModel, "");
  REQUIRE(journeys::harmonics(train.command("--quiet")).code == 0);
  const std::string learned = read(train.weights());
  const size_t calls = at_every_call({"kill", 0, train.output() + "/*"}, [&](const Fault& fault) {
    fs::remove_all(train.output());
    const Result killed = harmonics_in(variables(f, fault), train.command("--quiet"));
    if (struck_in(f).number == 0) return false;
    CHECK(killed.code == kKilled);
    const bool begun = fs::exists(train.output() + "/checkpoints") && !fs::is_empty(train.output() + "/checkpoints");
    const Result resumed = journeys::harmonics(train.command(begun ? "--quiet --resume" : "--quiet"));
    CHECK(resumed.code == 0);
    CHECK((read(train.weights()) == learned));
    return true;
  });
  CHECK(calls > 20);
}

TEST_CASE("train: a loss that is not finite leaves the last good weights, the batch and a remedy") {
  Folder f;
  const SmallTraining train(f, "out", kTinyModel, "max_grad_norm: 0\nlearning_rate: 1e20\n");
  const Result r = journeys::harmonics(train.command());
  CHECK(r.code == 1);
  CHECK(has(r.err, "note: the weights are those after step 1, all finite\n"));
  CHECK(has(r.err, "--set learning_rate="));
  CHECK_FALSE(has(r.err, "-nan"));
  CHECK(fs::exists(train.weights()));
  CHECK(names_in(train.output() + "/skipped_batches").size() == 1);
}
