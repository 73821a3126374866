// Third-party kernels on the CUDA device: the sample of a custom shader, on the emulated device and a driver library
// that emulates its launches.
#include "tests/journeys/shell.hpp"

#include <cmath>

using namespace journeys;

namespace {

const std::string kPlayed = std::string("LD_LIBRARY_PATH='") + HARMONICS_PLAYED_CUDA + "'";
const std::string kShaderOnCuda = " --plugin '" + std::string(HARMONICS_FUSED_RELU) + "' ";
const std::string kEmulatedDevice = std::string("--plugin '") + HARMONICS_CUDA_EMULATED + "' --device cuda_emulated ";
const std::string kShaderRun =
    kSamples +
    "fused_relu_shader/fused_relu.hmx --producer 'images=synth:digits?size=100&seed=1' --producer "
    "'labels=synth:digits?size=100&seed=1#label' --batch 20 ";

}  // namespace

TEST_CASE("cuda native: a shader of a plugin runs on the device's stream, and the results are the body's") {
  const std::string run = "run " + kShaderRun + kShaderOnCuda + "--steps 4 --json --quiet --threads 1 ";
  const journeys::Result cpu = harmonics(run), cuda = harmonics_in(kPlayed, run + kEmulatedDevice, 280);
  REQUIRE(cpu.code == 0);
  INFO(cuda.err);
  REQUIRE(cuda.code == 0);
  REQUIRE(std::isfinite(number(cpu.out, "loss")));
  CHECK(number(cuda.out, "loss") == Approx(number(cpu.out, "loss")).epsilon(1e-3));
  const std::string explain = "explain " + kShaderRun + kShaderOnCuda + kEmulatedDevice;
  CHECK(has(harmonics_in(kPlayed, explain + "--placement", 280).out, "none on the host"));
  CHECK(has(harmonics_in(kPlayed, explain + "--show kernels", 280).out, "fused_relu shader"));
}

TEST_CASE("cuda native: a driver library without the functions is an error that names one") {
  const journeys::Result r = harmonics_in(
      "LD_LIBRARY_PATH=/nowhere", "run " + kShaderRun + kShaderOnCuda + kEmulatedDevice + "--steps 1 --quiet", 280);
  if (r.code == 0) return;  // this machine has a driver
  CHECK(has(r.err, "the CUDA driver lacks cuModuleLoadData"));
}
