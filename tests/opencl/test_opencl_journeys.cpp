// The OpenCL device on the command line.
#include "tests/opencl/journeys.hpp"

using namespace journeys;

namespace {

const std::string kNoDriver = "OCL_ICD_VENDORS=/nowhere";
const std::string kJourneyDigits =
    " --producer 'synth:digits?size=600&seed=1' --producer 'synth:digits?size=600&seed=1#label' --batch 32 --threads "
    "2 ";

// Returns a small flow similar to mnist.hmx.
std::string small_flow(const Folder& f) {
  return f.write("small.hmx",
                 "harmonic small { producer x; producer y 1/1 x; layer hidden {48}; layer output;\n"
                 "  cycle { x -(relu)-> hidden -(dropout(0.2))-> output; output <-(cross_entropy)- y; } }\n");
}

}  // namespace

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

TEST_CASE("opencl: the greedy text of the llama2.c checkpoint is llama2.c's") {
  const std::string data = data_folder(), folder = data + "/llama2c/";
  if (data.empty() || !fs::exists(folder + "stories260K.bin") || !has_driver()) return;
  const Result r = harmonics("generate " + folder + "stories260K.bin --tokenizer " + folder +
                             "tok512.bin --temperature 0 --max-tokens 256 --device opencl");
  INFO(r.err);
  CHECK(r.code == 0);
  const std::string expected = read(folder + "stories260K.expected.txt");
  CHECK(r.out == expected.substr(0, expected.find_last_not_of('\n') + 1) + "\n");
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
  for (const char* op : {"attention", "attention_grad"})
    CHECK(has(r.out, std::string(", ") + op + " "));  // without documents; gradients also without pages
  CHECK(has(r.out, ", cache_append"));
  // f32; linear on floats, not on scaled bytes
  for (const char* op : {"adam", "adamw", "lamb", "linear", "lion", "rmsprop", "sgd", "sgd_outer"}) {
    INFO(op);
    CHECK(has(r.out, std::string(", ") + op + " "));
  }
}
