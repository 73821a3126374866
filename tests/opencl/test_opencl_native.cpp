// Third-party kernels on the OpenCL device: the sample of a custom shader.
#include "tests/opencl/journeys.hpp"

#include <cmath>

using namespace journeys;

namespace {

const std::string kShader = std::string(" --plugin '") + HARMONICS_FUSED_RELU + "' ";
const std::string kShaderFlow = kSamples + "fused_relu_shader/fused_relu.hmx";
const std::string kShaderDigits =
    " --producer 'images=synth:digits?size=200&seed=1' --producer 'labels=synth:digits?size=200&seed=1#label' --batch "
    "20 ";

}  // namespace

TEST_CASE("opencl native: a shader of a plugin runs in the device's queue, and the results are the body's") {
  if (!has_driver()) return;
  const std::string run = "run " + kShaderFlow + kShaderDigits + kShader + "--steps 20 --json --quiet --threads 1 ";
  const Result cpu = harmonics(run), opencl = harmonics(run + "--device opencl", 280);
  REQUIRE(cpu.code == 0);
  INFO(opencl.err);
  REQUIRE(opencl.code == 0);
  REQUIRE(std::isfinite(number(cpu.out, "loss")));
  CHECK(number(opencl.out, "loss") == Approx(number(cpu.out, "loss")).epsilon(1e-3));
  const std::string explain = "explain " + kShaderFlow + kShaderDigits + kShader;
  const Result placed = harmonics(explain + "--placement --device opencl", 280),
               kernels = harmonics(explain + "--show kernels --device opencl", 280);
  REQUIRE(placed.code == 0);
  CHECK(has(placed.out, "none on the host"));
  CHECK(has(kernels.out, "fused_relu shader"));
}

TEST_CASE("opencl native: without handles of a driver the shader declines, and its metadata name it") {
  const Result selected = harmonics("explain " + kShaderFlow + kShaderDigits + kShader + "--select");
  REQUIRE(selected.code == 0);
  CHECK(has(selected.out, "needs a device with an OpenCL driver"));
  const Result shown = harmonics("inspect fused_relu" + kShader);
  REQUIRE(shown.code == 0);
  CHECK(has(shown.out, "metadata\n  shader         fused_relu (OpenCL C)\n"));
  CHECK(
      has(harmonics("inspect fused_relu --json" + kShader).out, "\"metadata\":{\"shader\":\"fused_relu (OpenCL C)\"}"));
  CHECK(harmonics("plugin check '" + std::string(HARMONICS_FUSED_RELU) + "' --calls 1000").code == 0);
}
