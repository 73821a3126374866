// The OpenCL device on the command line.
#include "tests/opencl/journeys.hpp"

#include <cmath>

using namespace journeys;

namespace {

const std::string kNoDriver = "OCL_ICD_VENDORS=/nowhere";
const std::string kJourneyDigits =
    " --producer 'synth:digits?size=600&seed=1' --producer 'synth:digits?size=600&seed=1#label' --batch 32 --threads "
    "2 ";

// A small flow like mnist.hmx.
std::string small_flow(const Folder& f) {
  return f.write("small.hmx",
                 "harmonic small { producer x; producer y 1/1 x; layer hidden {48}; layer output;\n"
                 "  cycle { x -(relu)-> hidden -(dropout(0.2))-> output; output <-(cross_entropy)- y; } }\n");
}

double loss_of(const Result& r) { return number(r.out, "loss"); }

}  // namespace

TEST_CASE("opencl: a flow trains to the CPU's losses") {
  if (!has_driver()) return;
  Folder f;
  const std::string run = "run " + small_flow(f) + kJourneyDigits + "--steps 40 --json --quiet --device ";
  const Result cpu = harmonics(run + "cpu"), opencl = harmonics(run + "opencl", 280);
  REQUIRE(cpu.code == 0);
  REQUIRE(opencl.code == 0);
  REQUIRE(std::isfinite(loss_of(cpu)));
  CHECK(loss_of(opencl) == Approx(loss_of(cpu)).epsilon(1e-3));
  CHECK_FALSE(has(opencl.err, "has no kernel"));
}

TEST_CASE("opencl: mnist.hmx and mnist_cnn.hmx run without host steps") {
  if (!has_driver()) return;
  for (const char* sample : {"mnist.hmx", "mnist_cnn.hmx"}) {
    const std::string flow = kSamples + sample + kJourneyDigits;
    const Result placed = harmonics("explain " + kSamples + sample +
                                        " --producer 'synth:digits?size=600&seed=1' --producer "
                                        "'synth:digits?size=600&seed=1#label' --batch 32 --placement --device opencl",
                                    280);
    REQUIRE(placed.code == 0);
    CHECK(has(placed.out, "none on the host"));
    const Result cpu = harmonics("run " + flow + "--steps 4 --json --quiet"),
                 opencl = harmonics("run " + flow + "--steps 4 --json --quiet --device opencl", 280);
    REQUIRE(opencl.code == 0);
    CHECK(loss_of(opencl) == Approx(loss_of(cpu)).epsilon(1e-3));
  }
}

TEST_CASE("opencl: char_gpt.hmx trains to the CPU's losses without host steps") {
  if (!has_driver()) return;
  Folder f;
  std::string text;
  for (int i = 0; i < 120; ++i)
    text += "The " + std::to_string(i * i) + "th verse of a song, sung " +
            std::string(static_cast<size_t>(i % 5), 'o') + " again.\n";
  const std::string flow =
      kSamples + "char_gpt.hmx --producer 'file:" + f.write("song.txt", text) + "?window=24' --batch 3 ";
  const Result placed = harmonics("explain " + flow + "--clip 1 --placement --device opencl", 280);
  REQUIRE(placed.code == 0);
  CHECK(has(placed.out, "none on the host"));
  const std::string run = "run " + flow + "--clip 1 --steps 6 --threads 2 --json --quiet --device ";
  const Result cpu = harmonics(run + "cpu"), opencl = harmonics(run + "opencl", 280);
  REQUIRE(cpu.code == 0);
  REQUIRE(opencl.code == 0);
  CHECK(loss_of(opencl) == Approx(loss_of(cpu)).epsilon(1e-3));
  CHECK_FALSE(has(opencl.err, "has no kernel"));
}

TEST_CASE("opencl: profile and bench use the device's clock") {
  if (!has_driver()) return;
  Folder f;
  const std::string flow = small_flow(f) + kJourneyDigits;
  const Result profile = harmonics("profile " + flow + "--steps 5 --device opencl --json", 280);
  REQUIRE(profile.code == 0);
  CHECK(has(profile.out, "on device opencl"));
  CHECK(has(profile.out, "times of single steps are by the device's clock, less "));
  CHECK(has(profile.out, "\"clock\":\"device\""));
  CHECK(number(profile.out, "floor") > 0);
  CHECK(number(profile.out, "kernels") > 0);
  CHECK(has(profile.out, "\"device\":\"opencl\""));
  const Result bench =
      harmonics("bench " + small_flow(f) +
                    " --producer 'synth:digits?size=600&seed=1' --producer 'synth:digits?size=600&seed=1#label' "
                    "--batch 32 --threads 1 --seconds 0.1 --device opencl --json",
                280);
  REQUIRE(bench.code == 0);
  CHECK(has(bench.out, "\"device\":\"opencl\""));
  CHECK(number(bench.out, "samples_per_second") > 0);
}

TEST_CASE("opencl: checkpoints move between the CPU and OpenCL") {
  if (!has_driver()) return;
  Folder f;
  const std::string flow = small_flow(f) + kJourneyDigits + "--json --quiet ";
  const Result undisturbed = harmonics("run " + flow + "--steps 30");
  REQUIRE(undisturbed.code == 0);
  for (const auto& [first, second] : {std::pair("cpu", "opencl"), std::pair("opencl", "cpu")}) {
    const std::string folder = f / (std::string(first) + "-run");
    REQUIRE(
        harmonics("run " + flow + "--steps 15 --checkpoint '" + folder + "' --every 100steps --device " + first, 280)
            .code == 0);
    const Result rest = harmonics("run " + flow + "--steps 30 --resume '" + folder + "' --device " + second, 280);
    REQUIRE(rest.code == 0);
    CHECK(loss_of(rest) == Approx(loss_of(undisturbed)).epsilon(2e-3));
  }
}

TEST_CASE("opencl: list devices shows the device or why it is unavailable") {
  if (has_driver()) {
    const Result r = harmonics("list devices");
    CHECK(r.code == 0);
    CHECK(has(r.out, "driver "));
    CHECK(has(r.out, "memory "));
  }
  const Result none = harmonics_in(kNoDriver, "list devices");
  CHECK(none.code == 0);
  CHECK(has(none.out, "not available: no OpenCL driver is installed"));
  CHECK(has(harmonics_in(kNoDriver, "list devices --json").out, "\"unavailable\":\"no OpenCL driver is installed"));
}

TEST_CASE("opencl: an unavailable device is an error, auto falls back to the CPU with a note") {
  Folder f;
  const std::string run = "run " + small_flow(f) + kJourneyDigits + "--steps 2 --device ";
  const Result wanted = harmonics_in(kNoDriver, run + "opencl");
  CHECK(wanted.code == 1);
  CHECK(has(wanted.err, "device 'opencl' cannot be used: no OpenCL driver is installed"));
  const Result any = harmonics_in(kNoDriver, run + "auto");
  CHECK(any.code == 0);
  CHECK(has(any.err, "device auto: the CPU, as there is no accelerator to use"));
}

TEST_CASE("opencl: agrees with the reference on every supported call") {
  if (!has_driver()) return;
  const Result r = harmonics(std::string("plugin check --calls 50000 ") + HARMONICS_OPENCL_PLUGIN, 840);
  CHECK(r.code == 0);
  CHECK(has(r.out, "ok      reports the calls it serves: serves "));
  CHECK_FALSE(has(r.out, "without a reason"));
  for (const char* op : {"batch_norm",
                         "batch_norm_grad",
                         "conv",
                         "conv_grad_input",
                         "conv_grad_weight",
                         "conv_max_pool",
                         "conv_max_pool_grad_input",
                         "conv_max_pool_grad_weight",
                         "dot_add",
                         "embedding_grad",
                         "fused_reduce",
                         "global_norm",
                         "group_norm",
                         "group_norm_grad",
                         "gru_scan",
                         "gru_scan_grad",
                         "layer_norm_grad",
                         "lstm_scan",
                         "lstm_scan_grad",
                         "max_pool",
                         "max_pool_grad",
                         "rope",
                         "softmax_cross_entropy_grad"}) {
    INFO(op);
    CHECK(has(r.out, std::string(", ") + op + ","));  // all types
  }
  for (const char* op : {"attention", "attention_grad", "cache_append"})
    CHECK(has(r.out, std::string(", ") + op + " "));  // no pages, no documents
  // f32; linear on floats, not on bytes and a scale
  for (const char* op : {"adam", "adamw", "lamb", "linear", "lion", "rmsprop", "sgd", "sgd_outer"}) {
    INFO(op);
    CHECK(has(r.out, std::string(", ") + op + " "));
  }
}
