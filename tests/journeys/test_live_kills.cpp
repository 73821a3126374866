// Live runs that are killed and stopped on the command line.
#include "tests/journeys/background.hpp"

#include <cstring>

using namespace journeys;

namespace {

const std::string kLive = kSamples + "live_zmq/live.hmx";

std::string from(const std::string& address) {
  return " --producer 'image=" + address + "#image' --producer 'label=" + address + "#label'";
}

std::string sending(const std::string& to, const std::string& more) {
  return "send '" + to +
         "?patience=60' --from image=synth:digits?size=3000 --from 'label=synth:digits?size=3000#label' "
         "--producer-name one --ack durable --quiet " +
         more;
}

}  // namespace

TEST_CASE("live kills: runs with failures end with the weights of an undisturbed run") {
  Folder f;
  const std::string log = f / "log";
  const int status = std::system(("timeout 280 '" + std::string(HARMONICS_SOURCE_DIR) +
                                  "/scripts/campaign.sh' --chaos --worlds 0 --seconds 8 --seed 5 --program '" +
                                  kProgram + "' >'" + log + "' 2>&1")
                                     .c_str());
  INFO(read(log));
  CHECK(status == 0);
  for (const char* kind : {"tcp: ", "zmq+router: "})
    if (kind == std::string("tcp: ") || has(harmonics("list producers").out, "zmq+router"))
      CHECK(has(read(log), std::string(kind) + "7200 samples through "));
  CHECK(has(read(log), "the weights are the same to the bit"));
}

TEST_CASE("live kills: a live run stopped while it waits can resume") {
  Folder f;
  const std::string control = f / "control", address = "unix:" + (f / "socket");
  const std::string run = "run " + kLive + " --seed 3 --batch 8 --checkpoint " + (f / "runs") +
                          " --every 1h --resume --save " + (f / "w.safetensors") + from(address);
  {
    Folder own, its;
    Background first(own, run + " --control " + control), slow(its, sending(address, "--rate 20"));
    REQUIRE(first.await([&] { return number(harmonics("ctl " + control + " status --json").out, "step") >= 2; }));
    first.signal(SIGINT);
    const Result stopped = first.end();
    CHECK(stopped.code == 130);  // and a checkpoint exists
    CHECK(has(stopped.err, "to continue:"));
    slow.signal(SIGKILL);
    slow.end();
  }
  Background sender(f, sending(address, ""));
  const Result rest = harmonics(run);
  CHECK(rest.code == 0);
  CHECK(has(rest.err, "resuming from"));
  CHECK(sender.end().code == 0);
  const std::string plain =
      "run " + kLive + " --seed 3 --batch 8 --epochs 1 --quiet --save " + (f / "v.safetensors") +
      " --producer 'image=synth:digits?size=3000&shuffle=0' --producer 'label=synth:digits?size=3000#label'";
  REQUIRE(harmonics(plain).code == 0);
  const auto numbers = [](const std::string& file) {
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    return file.substr(8 + header);
  };
  CHECK(numbers(read(f / "w.safetensors")) == numbers(read(f / "v.safetensors")));
}

TEST_CASE("live kills: a run ended by a signal leaves no control socket behind") {
  Folder f;
  const std::string control = f / "control";
  const auto status = [&] { return harmonics("ctl " + control + " status --json").out; };
  for (const int number : {SIGINT, SIGTERM}) {
    INFO("signal " << number << " while it waits for its first sample");
    Folder own;
    Background waits(own, "run " + kLive + " --control " + control + from("unix:" + (f / "socket")));
    REQUIRE(waits.await([&] { return has(status(), "\"state\":\"starting\""); }));
    waits.signal(number);
    CHECK(waits.end().code == 128 + number);
    CHECK(!fs::exists(control));
  }
  std::string slow = read(kLive);
  slow.replace(slow.find("-(relu)->"), 9, "-(slow_down(seconds=10, after=20))->");
  const std::string run = "run " + f.write("slow.hmx", slow) + " --plugin " + std::string(HARMONICS_BINARY_DIR) +
                          "/test_plugins/libslow_down.so --control " + control +
                          " --producer image=synth:digits?size=3000 --producer 'label=synth:digits?size=3000#label'";
  for (const std::string& keeps : {std::string(), " --checkpoint " + (f / "kept")}) {
    INFO("the second signal within a step" << keeps);
    Folder own;
    Background steps(own, run + keeps);
    REQUIRE(steps.await([&] { return has(steps.errors(), "slow_down: it takes its time"); }));
    steps.signal(SIGINT);
    steps.signal(SIGTERM);  // two pending signals of one kind may merge
    const Result end = steps.end();
    CHECK(end.code != 0);
    CHECK(!has(end.err, "trained "));  // the current step was aborted
    CHECK(!fs::exists(control));
  }
}

TEST_CASE("live kills: damaged parts of a spool are reported and requested again") {
  Folder f;
  const std::string address = "unix:" + (f / "socket");
  const std::string run = "run " + kLive + " --seed 3 --spool " + (f / "spool") + from(address);
  {
    Background sender(f, sending(address, "--count 640"));
    REQUIRE(harmonics(run).code == 0);
    CHECK(sender.end().code == 0);
  }
  // Of both: a stream whose end is stored may end before its sender is back.
  for (const char* stream : {"image", "label"}) {
    const std::string file = f / (std::string("spool/") + stream + "/00000000000000000000.hxs");
    fs::resize_file(file, fs::file_size(file) - 5);
  }
  Background sender(f, sending(address, "--count 960"));
  const Result again = harmonics(run);
  CHECK(again.code == 0);
  CHECK(has(again.err, "ends within a frame, at byte "));
  CHECK(has(again.err, "data after it is dropped and requested again"));
  CHECK(has(again.err, "on 960 samples"));
  CHECK(sender.end().code == 0);
}
