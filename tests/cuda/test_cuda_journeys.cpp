// The CUDA device on the command line: the built plugin without a GPU, and whole runs on the emulated driver.
#include "tests/journeys/shell.hpp"

#include <cmath>

using namespace journeys;

namespace {

const std::string kDigits =
    " --producer 'synth:digits?size=200&seed=1' --producer 'synth:digits?size=200&seed=1#label' --batch 16 --threads "
    "1 ";
const std::string kEmulated = std::string(" --plugin '") + HARMONICS_CUDA_EMULATED + "' --device cuda_emulated ";

double loss_of(const Result& r) { return number(r.out, "loss"); }

// Compares the losses of a run on the CPU and on the emulated device, which must run no step on the host.
void expect_equal_losses(const std::string& run) {
  const Result cpu = harmonics(run), cuda = harmonics(run + kEmulated, 280);
  REQUIRE(cpu.code == 0);
  INFO(cuda.err);
  REQUIRE(cuda.code == 0);
  REQUIRE(std::isfinite(loss_of(cpu)));
  CHECK(loss_of(cuda) == Approx(loss_of(cpu)).epsilon(1e-3));
  CHECK_FALSE(has(cuda.err, "has no kernel"));
}

}  // namespace

TEST_CASE("cuda emulated: mnist.hmx trains to the CPU's losses") {
  expect_equal_losses("run " + kSamples + "mnist.hmx" + kDigits + "--steps 3 --json --quiet ");
}

TEST_CASE("cuda emulated: mnist_cnn.hmx trains with convolutions by cuDNN") {
  const std::string digits =
      " --producer 'synth:digits?size=50&seed=1' --producer 'synth:digits?size=50&seed=1#label' --batch 4 --threads 1 ";
  expect_equal_losses("run " + kSamples + "mnist_cnn.hmx" + digits + "--steps 2 --json --quiet ");
}

TEST_CASE("cuda emulated: bf16 and fp8 training stays close to fp32 losses") {
  const std::string run = "run " + kSamples + "mnist.hmx" + kDigits + "--steps 2 --json --quiet ";
  const double exact = loss_of(harmonics(run));
  REQUIRE(std::isfinite(exact));
  double last = exact;
  for (const auto& [precision, margin] : {std::pair("bf16", 0.01), std::pair("fp8", 0.05)}) {
    INFO(precision);
    const Result r = harmonics(run + kEmulated + "--precision " + precision, 280);
    INFO(r.err);
    REQUIRE(r.code == 0);
    CHECK(loss_of(r) == Approx(exact).epsilon(margin));
    CHECK(loss_of(r) != last);
    last = loss_of(r);
  }
  const Result refused = harmonics(run + "--precision fp8");
  CHECK(refused.code == 1);
  CHECK(has(refused.err, "device 'cpu' does not support fp8 here"));
  CHECK(has(refused.err, "it supports fp32"));
}

#ifdef HARMONICS_CUDA_PLUGIN
namespace {

bool has_accelerator() { return !has(harmonics("list devices").out, "no CUDA device"); }

}  // namespace

TEST_CASE("cuda: without a GPU the device is listed with the reason and rejected") {
  if (has_accelerator()) return;
  const Result list = harmonics("list devices");
  CHECK(list.code == 0);
  CHECK(has(list.out, "no CUDA device"));
  const Result run = harmonics("run " + kSamples + "mnist.hmx" + kDigits + "--steps 1 --device cuda");
  CHECK(run.code == 1);
  CHECK(has(run.err, "device 'cuda' cannot be used: no CUDA device"));
}

TEST_CASE("cuda: agrees with the reference on every supported call") {
  if (!has_accelerator()) {
    WARN("NOT TESTED ON A GPU: this machine has no CUDA device");
    return;
  }
  const Result r = harmonics(std::string("plugin check --calls 50000 ") + HARMONICS_CUDA_PLUGIN, 290);
  INFO(r.out);
  CHECK(r.code == 0);
}
#endif
