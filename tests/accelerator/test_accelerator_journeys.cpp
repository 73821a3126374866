// Whole runs on an accelerator and on the CPU.
#include "tests/accelerator/journeys.hpp"

#include <cmath>

#include "tests/journeys/background.hpp"
#include "tests/journeys/sending.hpp"

using namespace journeys;

namespace {

const std::string kJourneyDigits =
    " --producer 'synth:digits?size=600&seed=1' --producer 'synth:digits?size=600&seed=1#label' --batch 32 --threads "
    "2 ";

// Returns a small flow similar to mnist.hmx.
std::string small_flow(const Folder& f) {
  return f.write("small.hmx",
                 "harmonic small { producer x; producer y 1/1 x; layer hidden {48}; layer output;\n"
                 "  cycle { x -(relu)-> hidden -(dropout(0.2))-> output; output <-(cross_entropy)- y; } }\n");
}

double loss_of(const Result& r) { return number(r.out, "loss"); }

}  // namespace

TEST_CASE("accelerator: a flow trains to the CPU's losses") {
  if (!has_accelerator()) return;
  Folder f;
  const std::string run = "run " + small_flow(f) + kJourneyDigits + "--steps 40 --json --quiet --device ";
  const Result cpu = harmonics(run + "cpu"), there = harmonics(run + accelerator(), 280);
  REQUIRE(cpu.code == 0);
  REQUIRE(there.code == 0);
  REQUIRE(std::isfinite(loss_of(cpu)));
  CHECK(loss_of(there) == Approx(loss_of(cpu)).epsilon(1e-3));
  CHECK_FALSE(has(there.err, "has no kernel"));
}

TEST_CASE("accelerator: mnist.hmx and mnist_cnn.hmx run without host steps") {
  if (!has_accelerator()) return;
  for (const char* sample : {"mnist.hmx", "mnist_cnn.hmx"}) {
    const std::string flow = kSamples + sample + kJourneyDigits;
    const Result placed = harmonics("explain " + kSamples + sample +
                                        " --producer 'synth:digits?size=600&seed=1' --producer "
                                        "'synth:digits?size=600&seed=1#label' --batch 32 --placement --device " +
                                        accelerator(),
                                    280);
    REQUIRE(placed.code == 0);
    CHECK(has(placed.out, "none on the host"));
    const Result cpu = harmonics("run " + flow + "--steps 4 --json --quiet"),
                 there = harmonics("run " + flow + "--steps 4 --json --quiet --device " + accelerator(), 280);
    REQUIRE(there.code == 0);
    CHECK(loss_of(there) == Approx(loss_of(cpu)).epsilon(1e-3));
  }
}

TEST_CASE("accelerator: char_gpt.hmx trains to the CPU's losses without host steps") {
  if (!has_accelerator()) return;
  Folder f;
  std::string text;
  for (int i = 0; i < 120; ++i)
    text += "The " + std::to_string(i * i) + "th verse of a song, sung " +
            std::string(static_cast<size_t>(i % 5), 'o') + " again.\n";
  const std::string flow =
      kSamples + "char_gpt.hmx --producer 'file:" + f.write("song.txt", text) + "?window=24' --batch 3 ";
  const Result placed = harmonics("explain " + flow + "--clip 1 --placement --device " + accelerator(), 280);
  REQUIRE(placed.code == 0);
  CHECK(has(placed.out, "none on the host"));
  const std::string run = "run " + flow + "--clip 1 --steps 6 --threads 2 --json --quiet --device ";
  const Result cpu = harmonics(run + "cpu"), there = harmonics(run + accelerator(), 280);
  REQUIRE(cpu.code == 0);
  REQUIRE(there.code == 0);
  CHECK(loss_of(there) == Approx(loss_of(cpu)).epsilon(1e-3));
  CHECK_FALSE(has(there.err, "has no kernel"));
}

TEST_CASE("accelerator: profile and bench use the device's clock") {
  if (!has_accelerator()) return;
  Folder f;
  const std::string flow = small_flow(f) + kJourneyDigits;
  const Result profile = harmonics("profile " + flow + "--steps 5 --device " + accelerator() + " --json", 280);
  REQUIRE(profile.code == 0);
  CHECK(has(profile.out, "on device " + accelerator()));
  CHECK(has(profile.out, "times of single steps are by the device's clock, less "));
  CHECK(has(profile.out, "\"clock\":\"device\""));
  CHECK(number(profile.out, "floor") > 0);
  CHECK(number(profile.out, "kernels") > 0);
  CHECK(has(profile.out, "\"device\":\"" + accelerator() + "\""));
  const Result bench =
      harmonics("bench " + small_flow(f) +
                    " --producer 'synth:digits?size=600&seed=1' --producer 'synth:digits?size=600&seed=1#label' "
                    "--batch 32 --threads 1 --seconds 0.1 --device " +
                    accelerator() + " --json",
                280);
  REQUIRE(bench.code == 0);
  CHECK(has(bench.out, "\"device\":\"" + accelerator() + "\""));
  CHECK(number(bench.out, "samples_per_second") > 0);
}

TEST_CASE("accelerator: checkpoints move between the CPU and the accelerator") {
  if (!has_accelerator()) return;
  Folder f;
  const std::string flow = small_flow(f) + kJourneyDigits + "--json --quiet ";
  const Result undisturbed = harmonics("run " + flow + "--steps 30");
  REQUIRE(undisturbed.code == 0);
  for (const auto& [first, second] :
       {std::pair(std::string("cpu"), accelerator()), std::pair(accelerator(), std::string("cpu"))}) {
    const std::string folder = f / (std::string(first) + "-run");
    REQUIRE(
        harmonics("run " + flow + "--steps 15 --checkpoint '" + folder + "' --every 100steps --device " + first, 280)
            .code == 0);
    const Result rest = harmonics("run " + flow + "--steps 30 --resume '" + folder + "' --device " + second, 280);
    REQUIRE(rest.code == 0);
    CHECK(loss_of(rest) == Approx(loss_of(undisturbed)).epsilon(2e-3));
  }
}

TEST_CASE("accelerator: generate and serve write the CPU's texts from f32, q8_0 and q4_k_m weights") {
  if (!has_accelerator()) return;
  Folder f;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The cat sat on mat " + std::to_string(i) + ". ";
  const std::string book = f.write("book.txt", text), tokenizer = f / "tokenizer.json", folder = f / "folder/",
                    exact = f / "exact.gguf",
                    spec = f.write("small.ndsl",
                                   "name: Small\ntype: model\nextends: Llama2\nconfig:\n  vocab_size: 300\n"
                                   "  hidden_size: 256\n  num_layers: 2\n  num_query_heads: 4\n"
                                   "  num_kv_heads: 2\n  intermediate_size: 256\n"
                                   "  max_position_embeddings: 128\n");
  for (const std::string& command :
       {"tokenize --train 300 --file " + book + " " + tokenizer,
        "export " + spec + " " + folder + " --tokenizer " + tokenizer, "export " + folder + " " + exact}) {
    INFO(command);
    REQUIRE(harmonics(command).code == 0);
  }
  for (const std::string type : {"f32", "q8_0", "q4_k_m"}) {
    INFO(type);
    const std::string model = type == "f32" ? exact : f / (type + ".gguf");
    if (type != "f32") REQUIRE(harmonics("quantize " + exact + " " + model + " --type " + type).code == 0);
    for (const char* cache : {"f32", "q8_0"}) {
      const std::string flags =
          " 'The cat sat' --temperature 0 --max-tokens 24 --precision fp32 --cache-type " + std::string(cache);
      const Result cpu = harmonics("generate " + model + flags),
                   there = harmonics("generate " + model + flags + " --device " + accelerator(), 280);
      REQUIRE(cpu.code == 0);
      INFO(there.err);
      REQUIRE(there.code == 0);
      CHECK(there.out == cpu.out);
      CHECK_FALSE(has(there.err, "has no kernel"));
    }
    std::string answers[2];
    for (const std::string& device : {std::string("cpu"), accelerator()}) {
      const std::string port = unused_port();
      Background server(f, "serve " + model + " --precision fp32 --listen 127.0.0.1:" + port + " --device " + device);
      const std::string answer = posted(port, "/v1/completions", "application/json", "",
                                        "{\"prompt\": [\"The cat\", \"sat on\", \"The cat sat on mat 7. The\"], "
                                        "\"temperature\": 0, \"max_tokens\": 20}");
      answers[device != "cpu"] = answer.substr(answer.find("\"choices\""));
      server.signal(SIGTERM);
      CHECK(server.end().code == 128 + SIGTERM);
    }
    INFO(answers[1]);
    CHECK(answers[0].substr(0, answers[0].find("\"usage\"")) == answers[1].substr(0, answers[1].find("\"usage\"")));
  }
}
