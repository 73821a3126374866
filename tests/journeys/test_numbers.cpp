// Flags that affect numerics: --precision, --deterministic.
#include <cmath>
#include <sys/stat.h>

#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

// With noise, because products of plain digits skip zeros in fp32.
const std::string kNoisyDigits =
    "-p 'synth:digits?size=1500&seed=1&augment=noise(0.05)' -p 'synth:digits?size=1500&seed=1#label' -t "
    "'synth:digits?size=500&seed=2' -t 'synth:digits?size=500&seed=2#label' ";

const std::string kExplain =
    "explain " + kSamples + "mnist.hmx -p 'synth:digits?size=64' -p 'synth:digits?size=64#label' --show widths ";

// Runs with emulated fp16 products and a separate cache folder in which rates can be set.
class Rates {
 public:
  explicit Rates(const Folder& f) : folder_(f / "cache") { ::mkdir(folder_.c_str(), 0700); }
  std::string variables() const {
    return "XDG_CACHE_HOME='" + folder_ + "' HARMONICS_BF16=off HARMONICS_FP16=emulated";
  }
  std::string file() const { return folder_ + "/harmonics/product-rates"; }
  // Sets the rates of fp16 products relative to f32, as if measured. `small`: with fewer rows than `from`.
  void set(const std::string& factor, int from = 0, const std::string& small = "") {
    if (keys_.empty()) {
      REQUIRE(harmonics_in(variables(), kExplain + "--precision auto").code == 0);
      std::istringstream kept(read(file()));
      for (std::string line; std::getline(kept, line);) keys_.push_back(line.substr(0, line.find('\t')));
    }
    REQUIRE(keys_.size() == 4);
    std::ofstream lines(file(), std::ios::app);
    for (size_t i = 0; i < keys_.size(); ++i)
      lines << keys_[i] << "\tfp32=1\tfp16=" << ((32 << i) < from ? small : factor) << "\tend\n";
  }

 private:
  std::string folder_;
  std::vector<std::string> keys_;  // by the number of rows: 32, 64, 128, 256
};

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
  CHECK(has(refused.err, "device 'cpu' does not support fp16 here"));
  CHECK(has(refused.err, "this processor has no AVX512-FP16; it supports fp32, "));
  REQUIRE(
      harmonics_in("HARMONICS_BF16=off HARMONICS_FP16=off", common + "--precision auto --save " + (f / "a.safetensors"))
          .code == 0);
  REQUIRE(harmonics(common + "--precision fp32 --save " + (f / "b.safetensors")).code == 0);
  CHECK(read(f / "a.safetensors") == read(f / "b.safetensors"));
}

TEST_CASE("precision: training in bf16 converges like fp32, bit for bit on any number of threads") {
  Folder f;
  for (const std::string how : {"", "HARMONICS_BF16=emulated"}) {
    const std::string common = "run " + kSamples + "mnist.hmx " + kNoisyDigits + "--epochs 4 --json --quiet ";
    const Result half = harmonics_in(how, common + "--precision bf16 --threads 1 --save " + (f / "a.safetensors"));
    if (how.empty() && has(half.err, "device 'cpu' does not support bf16 here")) continue;
    const Result exact = harmonics(common);
    REQUIRE(exact.code == 0);
    REQUIRE(half.code == 0);
    CHECK(number(half.out, "loss") != number(exact.out, "loss"));
    CHECK(number(half.out, "loss") == Approx(number(exact.out, "loss")).epsilon(0.02));
    CHECK(number(half.out, "test_loss") == Approx(number(exact.out, "test_loss")).epsilon(0.02));
    CHECK(std::fabs(number(half.out, "test_accuracy") - number(exact.out, "test_accuracy")) <= 0.01);
    REQUIRE(harmonics_in(how, common + "--precision bf16 --threads 2 --save " + (f / "b.safetensors")).code == 0);
    CHECK(read(f / "a.safetensors") == read(f / "b.safetensors"));
  }
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

TEST_CASE("precision: auto takes fp16 where its products are 1.15 times as fast, and says why") {
  Folder f;
  Rates rates(f);
  const std::string run = "run " + kSamples + "mnist.hmx " + kNoisyDigits + "--batch 128 --epochs 1 --save ";
  const auto trained = [&](const std::string& name, const std::string& flags, const std::string& variables) {
    const Result r = harmonics_in(variables, run + (f / (name + ".safetensors")) + " " + flags);
    REQUIRE(r.code == 0);
    return r.err + r.out;
  };
  rates.set("1.7", 128, "1.1");
  CHECK(
      has(trained("half", "--precision auto", rates.variables()),
          "precision auto: fp16, as products in fp16 measured 1.70 times the rate of f32; those with a side below 128 "
          "stay f32\n"));
  rates.set("1.7", 256, "1.1");
  CHECK(has(trained("few", "--precision auto", rates.variables()), "; those with a side below 256 stay f32\n"));
  rates.set("1.1");
  CHECK(has(trained("full", "--precision auto", rates.variables()),
            "precision auto: fp32, as products in fp16 measured 1.10 times the rate of f32, less than 1.15\n"));
  CHECK(has(trained("fixed", "--precision auto --deterministic", rates.variables()),
            "precision auto: fp16, as device 'cpu' has products in fp16, and a measurement is not repeatable\n"));
  const std::string asked = trained("asked", "--precision fp32", rates.variables());
  CHECK(!has(asked, "precision auto"));
  CHECK(read(f / "full.safetensors") == read(f / "asked.safetensors"));
  CHECK(read(f / "half.safetensors") == read(f / "fixed.safetensors"));
  CHECK(read(f / "half.safetensors") != read(f / "full.safetensors"));
  CHECK(read(f / "few.safetensors") == read(f / "full.safetensors"));  // batches of 128 samples
  rates.set("1.7");
  const Result explained = harmonics_in(rates.variables(), kExplain + "--precision auto --json");
  REQUIRE(explained.code == 0);
  CHECK(has(explained.out, R"("precision":{"name":"fp16","why":"products in fp16 measured 1.70)"));
  const Result json = harmonics_in(rates.variables(), run + (f / "json.safetensors") + " --precision auto --json");
  CHECK(has(json.out, R"("precision":{"name":"fp16","why":"products in fp16 measured 1.70)"));
}

TEST_CASE("precision: auto measures once and keeps the rates") {
  Folder f;
  const Rates rates(f);
  const std::string line = kExplain + "--precision auto";
  const Result first = harmonics_in(rates.variables(), line);
  REQUIRE(first.code == 0);
  const std::string kept = read(rates.file());
  CHECK(has(kept, "\tfp16="));
  CHECK(harmonics_in(rates.variables(), line).out == first.out);
  CHECK(read(rates.file()) == kept);
  std::ofstream(rates.file()) << "damaged\n" << kept.substr(0, kept.size() / 2);
  CHECK(harmonics_in(rates.variables(), line).code == 0);
  CHECK(has(read(rates.file()), "\tend\n"));
}

TEST_CASE("precision: a resumed run goes on with the precision of its checkpoint") {
  Folder f;
  Rates rates(f);
  const std::string run = "run " + kSamples + "mnist.hmx " + kNoisyDigits + "--batch 128 --precision auto ";
  rates.set("1.7");
  REQUIRE(harmonics_in(rates.variables(), run + "--steps 24 --save " + (f / "whole.safetensors")).code == 0);
  const std::string half = run + "--steps 12 --checkpoint ";
  for (const char* folder : {"a", "b", "c", "d"})
    REQUIRE(harmonics_in(rates.variables(), half + (f / folder)).code == 0);
  const auto resumed = [&](const std::string& folder, const std::string& variables) {
    const Result r = harmonics_in(variables, run + "--steps 24 --checkpoint " + (f / folder) + " --resume --save " +
                                                 (f / (folder + ".safetensors")));
    REQUIRE(r.code == 0);
    return r.err + r.out;
  };
  CHECK(!has(resumed("a", rates.variables()), "bits may differ"));
  CHECK(read(f / "a.safetensors") == read(f / "whole.safetensors"));
  rates.set("1.7", 256, "1.1");  // other sides
  CHECK(!has(resumed("d", rates.variables()), "bits may differ"));
  CHECK(read(f / "d.safetensors") == read(f / "whole.safetensors"));
  rates.set("1.1");
  const std::string other = resumed("b", rates.variables());
  CHECK(has(other, "precision auto: fp16, as in the checkpoint (without it: fp32)"));
  CHECK(!has(other, "bits may differ"));
  CHECK(read(f / "b.safetensors") == read(f / "whole.safetensors"));
  CHECK(
      has(resumed("c", "HARMONICS_BF16=off HARMONICS_FP16=off"),
          "bits may differ from an uninterrupted run: the checkpoint was trained in fp16, which device 'cpu' does not "
          "compute here; precision auto: fp32"));
  CHECK(read(f / "c.safetensors") != read(f / "whole.safetensors"));
}
