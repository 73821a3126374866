// Libraries that end the program: the message names the plugin and the checkpoint to resume from.
#include <catch2/catch.hpp>

#include <csignal>

#include "tests/plugins/fixture.hpp"
#include "tests/plugins/small_run.hpp"

using journeys::has;
using journeys::Result;
namespace fs = std::filesystem;

namespace {

struct Crash {
  const char* how;
  int code;  // as reported by a shell
  const char* said;
};
constexpr Crash kCrashes[] = {{"segv", 128 + SIGSEGV, "crashed with SIGSEGV\n"},
                              {"jumps", 128 + SIGSEGV, "crashed with SIGSEGV\n"},
                              {"aborts", 128 + SIGABRT, "crashed with SIGABRT\n"},
                              {"raises", 128 + SIGFPE, "crashed with SIGFPE\n"},
                              {"overflows", 128 + SIGSEGV, "crashed with SIGSEGV: stack overflow\n"},
                              {"throws_in_thread", 128 + SIGABRT, "crashed with SIGABRT\n"},
                              {"exits", 1, "ended the process with exit() before the run was over\n"}};

// The address sanitizer handles these signals itself.
#ifdef __SANITIZE_ADDRESS__
const std::string kWithSignals =
    "ASAN_OPTIONS=handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:use_sigaltstack=0:"
    "detect_leaks=0:intercept_tls_get_addr=0 CRASHING_AFTER=";
#else
const std::string kWithSignals = "CRASHING_AFTER=";
#endif

}  // namespace

TEST_CASE("crashes: a plugin that ends a run is named, with the checkpoint to resume from") {
  const SmallRun data;
  for (const Crash& c : kCrashes) {
    const std::string runs = data.folder / c.how;
    const std::string run = "run " + data.flow("affine, " + std::string(c.how)) + data.flags + "--plugin " +
                            fixture("crashing") + " --checkpoint " + runs;
    REQUIRE(journeys::harmonics_in(kWithSignals + "1000", run + " --steps 2").code == 0);
    const Result r = journeys::harmonics_in(kWithSignals + "8", run + " --every 1000steps --resume");
    CHECK(r.code == c.code);
    CHECK(has(r.err, std::string("error: plugin 'org.example.crashing' ") + c.said + "note: its file is " +
                         fs::canonical(fixture("crashing")).string() + "\nthe last checkpoint: " + runs +
                         "/checkpoint-"));
    CHECK(has(r.err, "\nto continue:  "));
    CHECK(has(r.err, " --resume\n"));
    CHECK(journeys::harmonics("ckpt verify " + runs).code == 0);
  }
}

TEST_CASE("crashes: a plugin that ends an inference is named, without a checkpoint") {
  const SmallRun data;
  for (const Crash& c : kCrashes) {
    const Result r = journeys::harmonics_in(kWithSignals + "0", "infer --untrained " + data.flow(std::string(c.how)) +
                                                                    data.flags + "--plugin " + fixture("crashing"));
    CHECK(r.code == c.code);
    CHECK(has(r.err, std::string("error: plugin 'org.example.crashing' ") + c.said));
    CHECK_FALSE(has(r.err, "to continue"));
  }
}
