// Flags that affect numerics: --precision, --deterministic.
#include <cmath>

#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

// With noise, since products of plain digits skip zeros in fp32.
const std::string kNoisyDigits =
    "-p 'synth:digits?size=1500&seed=1&augment=noise(0.05)' -p 'synth:digits?size=1500&seed=1#label' -t "
    "'synth:digits?size=500&seed=2' -t 'synth:digits?size=500&seed=2#label' ";

}  // namespace

TEST_CASE("precision: training in fp16 chunks converges like fp32") {
  const std::string common = "run " + kSamples + "mnist.hmx " + kNoisyDigits + "--epochs 4 --json --quiet ";
  const Result exact = harmonics(common), half = harmonics_in("HARMONICS_FP16=emulated", common + "--precision fp16");
  REQUIRE(exact.code == 0);
  REQUIRE(half.code == 0);
  CHECK(number(half.out, "loss") != number(exact.out, "loss"));
  CHECK(number(half.out, "loss") == Approx(number(exact.out, "loss")).epsilon(0.02));
  CHECK(number(half.out, "test_loss") == Approx(number(exact.out, "test_loss")).epsilon(0.02));
  CHECK(std::fabs(number(half.out, "test_accuracy") - number(exact.out, "test_accuracy")) <= 0.01);
}

TEST_CASE("precision: fp16 chunks repeat bit for bit on any number of threads") {
  Folder f;
  const std::string common = "run " + kSamples + "mnist.hmx " + kNoisyDigits + "--epochs 1 --quiet --precision fp16 ";
  REQUIRE(harmonics_in("HARMONICS_FP16=emulated", common + "--threads 1 --save " + (f / "a.safetensors")).code == 0);
  REQUIRE(harmonics_in("HARMONICS_FP16=emulated", common + "--threads 2 --save " + (f / "b.safetensors")).code == 0);
  CHECK(read(f / "a.safetensors") == read(f / "b.safetensors"));
}

TEST_CASE("precision: fp16 is refused without processor support, and auto falls back") {
  Folder f;
  const std::string common = "run " + kSamples + "mnist.hmx " + kNoisyDigits + "--epochs 1 --quiet ";
  const Result refused = harmonics_in("HARMONICS_FP16=off", common + "--precision fp16");
  CHECK(refused.code == 1);
  CHECK(has(refused.err, "device 'cpu' does not compute in fp16 here"));
  CHECK(has(refused.err, "this processor has no AVX512-FP16; use fp32, or auto to take fp16 where there is"));
  REQUIRE(harmonics_in("HARMONICS_FP16=off", common + "--precision auto --save " + (f / "a.safetensors")).code == 0);
  REQUIRE(harmonics(common + "--precision fp32 --save " + (f / "b.safetensors")).code == 0);
  CHECK(read(f / "a.safetensors") == read(f / "b.safetensors"));
}

TEST_CASE("precision: a deterministic run repeats with any prefetch, and refuses time limits") {
  Folder f;
  const std::string common = "run " + kSamples + "mnist.hmx --quiet --deterministic ";
  REQUIRE(harmonics(common +
                    "-p 'synth:digits?size=400' -p 'synth:digits?size=400#label' --epochs 2 --threads 1 --save " +
                    (f / "a.safetensors"))
              .code == 0);
  REQUIRE(
      harmonics(
          common +
          "-p 'synth:digits?size=400&async=9' -p 'synth:digits?size=400&async=3#label' --epochs 2 --threads 2 --save " +
          (f / "b.safetensors"))
          .code == 0);
  CHECK(read(f / "a.safetensors") == read(f / "b.safetensors"));
  const Result refused = harmonics(common + kNoisyDigits + "--for 1s");
  CHECK(refused.code == 2);
  CHECK(has(refused.err, "a deterministic run cannot end by a time limit: the number of steps until then varies"));
  CHECK(has(refused.err, "give --steps or --epochs instead of a time, or remove --deterministic"));
}
