// A language model that learns from posted samples while it serves.
#include "tests/journeys/background.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/sending.hpp"

#include <vector>

using namespace journeys;

namespace {

const std::string kTune = kSamples + "live_finetune/tune.hmx";

// Returns windows of 64 bytes of an endless text, as JSON lines.
std::string text_windows(int count, int from) {
  const std::string text = "the cat sat on the mat and the dog lay in the hall; ";
  std::string lines;
  for (int w = 0; w < count; ++w) {
    lines += "{\"tokens\": [";
    for (int i = 0; i < 64; ++i)
      lines +=
          (i ? "," : "") + std::to_string(static_cast<int>(text[static_cast<size_t>(from + w * 7 + i) % text.size()]));
    lines += "]}\n";
  }
  return lines;
}

// Runs a flow whose producer `tokens` reads these lines.
Result run_on(const std::string& lines, const std::string& arguments) {
  const Folder f;
  f.write("lines", lines);
  const std::string command = "cat '" + (f / "lines") + "' | timeout 100 '" + kProgram + "' run " + arguments +
                              " --producer 'tokens=stdin:#tokens' >'" + (f / "out") + "' 2>'" + (f / "err") + "'";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(f / "out"), read(f / "err")};
}

double loss_with(const std::string& weights, const std::string& lines) {
  const Result tested = run_on(lines, kTune + " --optimizer 'sgd(lr=0)' --json --no-keep --weights " + weights);
  INFO(tested.err);
  REQUIRE(tested.code == 0);
  return number(tested.out, "loss");
}

}  // namespace

TEST_CASE("live fine-tuning: a model learns from posted samples and answers with its newest weights") {
  Folder f;
  const std::string base = f / "base.safetensors", tuned = f / "tuned.safetensors";
  const Result first = run_on(text_windows(64, 0), kTune + " --save " + base);
  INFO(first.err);
  REQUIRE(first.code == 0);
  const std::string port = unused_port();
  {
    Background run(f, "run " + kTune + " --weights " + base + " --producer 'tokens=http:#tokens' --serve 127.0.0.1:" +
                          port + " --token secret-of-test --steps 12 --save " + tuned + " --json");
    REQUIRE(run.await([&] { return !has(posted(port, "/v1/samples", "image/png", "secret-of-test", "x"), " 404 "); }));
    const std::string some = text_windows(48, 0), rest = text_windows(48, 11);
    CHECK(has(posted(port, "/v1/samples", "application/x-ndjson", "secret-of-test", some), " 20"));
    std::string window = text_windows(1, 0);
    window = window.substr(window.find('['), window.rfind(']') + 1 - window.find('['));
    const std::string asked = "{\"inputs\": {\"tokens\": [" + window + "]}}";
    std::string reply;
    REQUIRE(run.await([&] {
      reply = posted(port, "/v1/predict", "application/json", "secret-of-test", asked);
      return has(reply, " 200 ") && !has(reply, "\"step\":0");
    }));
    CHECK(has(reply, "\"scores\":[["));
    CHECK(has(posted(port, "/v1/samples", "application/x-ndjson", "secret-of-test", rest), " 200 "));
    const Result ended = run.end();
    INFO(ended.err);
    CHECK(ended.code == 0);
    CHECK(has(ended.err, "note: 'tokens': http: delivers at most once: senders get no reply"));
  }
  CHECK(loss_with(tuned, text_windows(8, 3)) < loss_with(base, text_windows(8, 3)));
}

TEST_CASE("live fine-tuning: a trained model is exported as a folder that generate takes") {
  const std::string folder = std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/folders/qwen2";
  Folder f;
  std::string rows;
  for (int w = 0; w < 16; ++w) {
    rows += "{\"tokens\": [";
    for (int i = 0; i < 12; ++i) rows += (i ? "," : "") + std::to_string((w * 5 + i * 3) % 40);
    rows += "]}\n";
  }
  fs::copy(folder, f / "model", fs::copy_options::recursive);
  const std::string flow = f.write(
      "t.hmx",
      "harmonic t { producer tokens; layer scores; cycle (batch=4) { tokens -(model(\"model\"))-> scores; scores "
      "<-(next_token)- tokens; } }");
  const std::string saved = f / "w.safetensors";
  const Result run = run_on(rows, flow + " --save " + saved);
  INFO(run.err);
  REQUIRE(run.code == 0);
  const std::string out = f / "out/";
  const Result exported = harmonics("export " + (f / "model") + " " + out + " --weights " + saved);
  INFO(exported.err);
  REQUIRE(exported.code == 0);
  const Result explained = harmonics("explain " + out);
  INFO(explained.err);
  CHECK(explained.code == 0);
  CHECK(read(f / "out/model.safetensors") != read(f / "model/model.safetensors"));
  const Result wrong = harmonics("export " + (f / "model") + " " + out + " --weights " + folder + "/model.safetensors");
  CHECK(wrong.code != 0);
  CHECK(has(wrong.err, "belongs to the model"));
}
