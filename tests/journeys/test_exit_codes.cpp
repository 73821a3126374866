// Provokes every exit code of the program by a real cause.
#include "tests/journeys/background.hpp"

#include <sys/stat.h>

using namespace journeys;

namespace {

const std::string kTrain =
    "run " + kSamples +
    "mnist.hmx --producer 'synth:digits?size=200' --producer 'synth:digits?size=200#label' --batch 20 ";
const std::string kFailing = std::string(HARMONICS_BINARY_DIR) + "/test_plugins/libexits.so";
const char* const kAffineFlow =
    "harmonic g { producer x; producer y; layer o; cycle { x -(affine)-> o; o <-(mse)- y; } }\n";

// Runs a shell command with the program as $HARMONICS. Returns its exit code.
int exit_of(const Folder& f, const std::string& command, std::string* err = nullptr) {
  const int status = std::system(
      ("export HARMONICS='" + kProgram + "'; exec 2>'" + (f / "err") + "'; timeout 60 bash -c '" + command + "'")
          .c_str());
  if (err) *err = read(f / "err");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

// Trains on the plugin's stream that fails at sample `good`.
Result on_failing(const Folder& f, const std::string& how, int good, const std::string& more = "") {
  const std::string flow = f.write("g.hmx", kAffineFlow),
                    address = "'failing:" + how + "?good=" + std::to_string(good) + "&shuffle=1'";
  return harmonics("run " + flow + " --plugin " + kFailing + " --producer x=" + address + " --producer y=" + address +
                   " --batch 8 --quiet " + more);
}

}  // namespace

TEST_CASE("exit codes 0, 1 and 2: done, failed, wrong use") {
  Folder f;
  CHECK(harmonics(kTrain + "--steps 2 --quiet").code == 0);
  const Result failed = harmonics("list --plugin " + kSamples + "mnist.hmx");
  CHECK(failed.code == 1);
  CHECK(has(failed.err, "is not a Harmonics plugin"));
  CHECK(harmonics(kTrain + "--stepz 2").code == 2);
}

TEST_CASE("exit codes 65 and 66: bad data, no input") {
  Folder f;
  CHECK(harmonics("inspect " + f.write("x.csv", "1,2\n1\n")).code == 65);
  CHECK(harmonics("run " + (f / "none.hmx")).code == 66);
  CHECK(harmonics("ckpt list " + (f / "none")).code == 66);
}

TEST_CASE("exit code 69: a peer that does not answer, or went away") {
  Folder f;
  const Result away = on_failing(f, "away", 0);
  CHECK(away.code == 69);
  CHECK(away.err == "error: stream 'x': the other side says no\nhelp: ask it again later\n");
  std::string err;
  const std::string weights = f / "w.safetensors";
  REQUIRE(harmonics(kTrain + "--steps 2 --quiet --save " + weights).code == 0);
  const std::string infer = "\"$HARMONICS\" infer " + kSamples + "mnist.hmx --weights " + weights +
                            " --producer \"synth:digits?size=20000\" --quiet";
  CHECK(exit_of(f, "set -o pipefail; " + infer + " | head -1 >/dev/null", &err) == 141);  // as in other programs
  CHECK(err.empty());
}

TEST_CASE("exit code 70: a bug") {
  Folder f;
  const std::string flow = f.write("g.hmx", "harmonic g { producer x; layer o; cycle { x -(bug)-> o; } }\n");
  const Result bug =
      harmonics("infer --untrained " + flow + " --plugin " + kFailing + " --producer " + f.write("x.csv", "1,2\n"));
  CHECK(bug.code == 70);
  CHECK(has(bug.err, "this cannot happen"));
}

TEST_CASE("exit code 73: output that cannot be written, including standard output") {
  Folder f;
  CHECK(harmonics(kTrain + "--steps 1 --quiet --save /nowhere/w.safetensors").code == 73);
  std::string err;
  CHECK(exit_of(f, "\"$HARMONICS\" list metrics >/dev/full", &err) == 73);
  CHECK(err == "error: cannot write to standard output: No space left on device\n");
}

TEST_CASE("exit code 74: a failing device") {
  Folder f;
  const Result reading = harmonics("run /proc/self/mem");  // address 0 is not mapped
  CHECK(reading.code == 74);
  CHECK(has(reading.err, "error: cannot read '/proc/self/mem': Input/output error\n"));
  CHECK(on_failing(f, "broken", 0).code == 74);
}

TEST_CASE("exit code 75: a run stopped by its data can resume from a checkpoint") {
  Folder f;
  for (const char* how : {"away", "broken", "forbidden"}) {
    const std::string runs = f / how;
    const Result stopped = on_failing(f, how, 30, "--checkpoint " + runs);
    CHECK(stopped.code == 75);
    CHECK(has(stopped.err, "error: stream '"));
    CHECK(has(stopped.err, "to continue:  "));
    CHECK(harmonics("ckpt verify " + runs).code == 0);
  }
}

TEST_CASE("exit code 77: permission denied") {
  Folder f;
  const std::string plugin = f / "libopen.so";
  fs::copy_file(kFailing, plugin);
  REQUIRE(::chmod(plugin.c_str(), 0666) == 0);
  const Result open = harmonics("list activations --plugin " + plugin);
  CHECK(open.code == 77);
  CHECK(open.err == "error: plugin '" + plugin + "' is not loaded: its file '" + plugin +
                        "' is writable by all users\n"
                        "help: move it to a folder where only you can write, e.g. ~/.local/share/harmonics/plugins\n");
  CHECK(on_failing(f, "forbidden", 0).code == 77);
}

TEST_CASE("exit code 78: an invalid graph or configuration") {
  Folder f;
  CHECK(harmonics("validate " + f.write("g.hmx", "harmonic g { layer }\n")).code == 78);
  CHECK(harmonics(kTrain + "--config " + f.write("c.toml", "batches = 3\n")).code == 78);
}

TEST_CASE("exit codes 129, 130 and 143: stopped by a signal, after a checkpoint") {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    Folder f;
    Background run(
        f, kTrain + "--epochs 100000 --checkpoint " + (f / "kept") + " --log " + (f / "l.csv") + " --log-every 1");
    REQUIRE(run.await([&] { return fs::exists(f / "l.csv") && fs::file_size(f / "l.csv") > 300; }));
    run.signal(signal);
    CHECK(run.end().code == 128 + signal);
    CHECK(harmonics("ckpt verify " + (f / "kept")).code == 0);
  }
}

TEST_CASE("exit codes: a run that ignores SIGHUP, as under nohup, continues") {
  Folder f;
  const std::string log = f / "l.csv";
  Background run(f, kTrain + "--epochs 100000 --log " + log + " --log-every 1", SIG_IGN);
  REQUIRE(run.await([&] { return fs::exists(log) && fs::file_size(log) > 300; }));
  run.signal(SIGHUP);
  const auto rows = fs::file_size(log);
  CHECK(run.await([&] { return fs::file_size(log) > rows + 300; }));
  run.signal(SIGTERM);
  CHECK(run.end().code == 128 + SIGTERM);
}
