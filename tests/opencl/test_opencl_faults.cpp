// Runs whose OpenCL device fails: the error states the cause, the last checkpoint stays intact. Faults come from
// failing_driver.cpp.
#include "tests/opencl/journeys.hpp"

#include <cmath>
#include <map>

using namespace journeys;

namespace {

std::string failing(const std::string& how) {
  return "HARMONICS_TEST_OPENCL=" + how +
         " ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0 LD_PRELOAD=" + HARMONICS_FAILING_DRIVER;
}

// A small flow in a folder, and common options of its runs.
struct Run {
  Folder f;
  std::string run = "run " +
                    f.write("small.hmx",
                            "harmonic small { producer x; producer y 1/1 x; layer output; cycle { x -(affine)-> "
                            "output; output <-(cross_entropy)- y; } }\n") +
                    " --producer 'synth:digits?size=300&seed=1' --producer 'synth:digits?size=300&seed=1#label' "
                    "--batch 32 --threads 1 --json --quiet --device ";
  std::string kept = f / "kept";
};

}  // namespace

TEST_CASE("opencl: out of memory reports the requested size") {
  if (!has_driver()) return;
  const Run with;
  for (const char* at : {"memory:1", "memory:4"}) {
    const Result r = harmonics_in(failing(at), with.run + "opencl --steps 3");
    CHECK(r.code == 1);
    CHECK(has(r.err, "device 'opencl' could not give "));
    CHECK(has(r.err, "CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)"));
  }
}

TEST_CASE("opencl: a failed run resumes from its intact last checkpoint") {
  if (!has_driver()) return;
  for (const auto& [how, what] :
       {std::pair("launch:120", "CL_OUT_OF_RESOURCES (-5)"), std::pair("gone:120", "CL_DEVICE_NOT_AVAILABLE (-2)")}) {
    const Run with;
    const Result undisturbed = harmonics(with.run + "opencl --steps 60");
    REQUIRE(undisturbed.code == 0);
    const Result r =
        harmonics_in(failing(how), with.run + "opencl --steps 60 --checkpoint '" + with.kept + "' --every 5steps");
    CHECK(r.code == 1);
    // A lost device fails at the next call, either a kernel or a copy.
    CHECK(has(r.err, how[0] == 'l' ? "device 'opencl' could not queue its kernel" : "device 'opencl' could not "));
    CHECK(has(r.err, what));
    REQUIRE(harmonics("ckpt verify '" + with.kept + "'").code == 0);
    for (const char* device : {"opencl", "cpu"}) {
      const Result rest = harmonics(with.run + device + " --steps 60 --resume '" + with.kept + "'");
      REQUIRE(rest.code == 0);
      CHECK(number(rest.out, "loss") == Approx(number(undisturbed.out, "loss")).epsilon(1e-3));
    }
  }
}

TEST_CASE("opencl: damaged or rejected programs are rebuilt") {
  if (!has_driver()) return;
  const Run with;
  const std::string cache = "XDG_CACHE_HOME='" + with.f / "cache" + "' POCL_CACHE_DIR='" + with.f / "pocl" + "' ",
                    folder = with.f / "cache/harmonics/opencl";
  const Result first = harmonics_in(cache, with.run + "opencl --steps 3");
  REQUIRE(first.code == 0);
  std::map<fs::path, std::string> whole;
  for (const auto& entry : fs::directory_iterator(folder)) whole[entry.path()] = read(entry.path());
  REQUIRE(whole.size() > 2);
  size_t n = 0;
  for (const auto& [path, text] : whole) {
    std::string damaged = text;
    if (n % 3 == 0)
      damaged.resize(text.size() / 2);
    else if (n % 3 == 1)
      damaged[text.size() - 10] = static_cast<char>(damaged[text.size() - 10] ^ 0x10);
    else
      damaged.clear();
    std::ofstream(path, std::ios::binary) << damaged;
    ++n;
  }
  const Result second = harmonics_in(cache, with.run + "opencl --steps 3");
  CHECK(second.code == 0);
  CHECK(number(second.out, "loss") == number(first.out, "loss"));
  for (const auto& [path, text] : whole) CHECK(fs::file_size(path) > 100);
  const Result refused = harmonics_in(cache + failing("binary:1"), with.run + "opencl --steps 3");
  CHECK(refused.code == 0);
  CHECK(number(refused.out, "loss") == number(first.out, "loss"));
}
