// Layers and optimizers trained on an accelerator and on the CPU.
#include "tests/accelerator/journeys.hpp"

using namespace journeys;

namespace {

const std::string kLayerDigits =
    " --producer 'synth:digits?size=300&seed=1' --producer 'synth:digits?size=300&seed=1#label' --batch 24 ";

// Compares the losses of both devices. Checks that the device runs all steps, and that OpenCL uses the kernels `by`.
void check_alike(const std::string& flow, const std::string& steps, const std::vector<const char*>& by,
                 double epsilon) {
  const Result placed = harmonics("explain " + flow + "--placement --device " + accelerator(), 280);
  REQUIRE(placed.code == 0);
  CHECK(has(placed.out, "none on the host"));
  const Result shown = harmonics("explain " + flow + "--show kernels --device " + accelerator(), 280);
  for (const char* kernel : by) {
    if (accelerator() != "opencl") break;  // kernel names differ between devices
    INFO(kernel);
    CHECK(has(shown.out, kernel));
  }
  const std::string run = "run " + flow + steps + " --threads 2 --json --quiet --device ";
  const Result cpu = harmonics(run + "cpu"), there = harmonics(run + accelerator(), 280),
               again = harmonics(run + accelerator(), 280);
  REQUIRE(cpu.code == 0);
  REQUIRE(there.code == 0);
  CHECK_FALSE(has(there.err, "has no kernel"));
  CHECK(number(there.out, "loss") == Approx(number(cpu.out, "loss")).epsilon(epsilon));
  CHECK(number(again.out, "loss") == number(there.out, "loss"));
}

}  // namespace

TEST_CASE("accelerator: optimizers train as on the CPU") {
  if (!has_accelerator()) return;
  Folder f;
  const std::string flow = f.write("small.hmx",
                                   "harmonic small { producer x; producer y 1/1 x; layer hidden {32}; layer output; "
                                   "cycle { x -(relu)-> hidden -> output; output <-(cross_entropy)- y; } }\n") +
                           kLayerDigits;
  for (const auto& [optimizer, kernel] :
       {std::pair("rmsprop(lr=1e-3, momentum=0.5, centered=true)", "rmsprop"),
        std::pair("lion(lr=1e-4, weight_decay=0.1)", "lion"), std::pair("lamb(lr=1e-2, weight_decay=0.1)", "lamb"),
        std::pair("sgd(lr=0.05)", "sgd of a product")}) {
    INFO(optimizer);
    check_alike(flow + "--optimizer '" + optimizer + "' ", "--steps 16", {kernel}, 2e-3);
  }
  check_alike(flow + "--accumulate 3 ", "--steps 12", {"sum of products", "chain and reduce"}, 2e-3);
}

TEST_CASE("accelerator: batch and group norms train with convolutions and pooling") {
  if (!has_accelerator()) return;
  Folder f;
  const std::string flow =
      f.write("norms.hmx",
              "harmonic norms { producer x {1, 28, 28}; producer y 1/1 x; layer edges; layer parts; layer output;\n"
              "  cycle { x -(conv(6, kernel=5), relu, maxpool(2))-> edges -(norm(\"batch\"), conv(8, kernel=3), "
              "norm(\"group\", groups=2), relu, maxpool(2))-> parts -> output;\n"
              "    output <-(cross_entropy)- y; } }\n");
  check_alike(flow + kLayerDigits, "--steps 6", {"batch norm", "group norm", "convolution and max pool", "max pool"},
              2e-3);
}

TEST_CASE("accelerator: recurrent layers train") {
  if (!has_accelerator()) return;
  Folder f;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "line " + std::to_string(i * i) + " of a long tale; ";
  const std::string producer = " --producer 'file:" + f.write("tale.txt", text) + "?window=12' --batch 6 ";
  for (const char* layer : {"lstm(20, layers=2)", "gru(20, bidirectional=true)"}) {
    INFO(layer);
    const std::string flow =
        f.write("tale.hmx", std::string("harmonic tale { producer text; layer letters {*, 8}; layer memory; layer "
                                        "next;\n  cycle { text -(embed)-> letters -(") +
                                layer + ")-> memory -> next; next <-(next_token)- text; } }\n");
    check_alike(flow + producer, "--steps 6", {"scan"}, 2e-3);
  }
}
