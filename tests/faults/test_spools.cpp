// Live streams by way of the disk: at whatever call the learner is killed, or its disk fails, no sample is lost and none is learned twice.
#include "tests/faults/faulted.hpp"

using namespace faults;

namespace {

// A sender and a learner of its samples, once each; the weights that come of it.
struct Live {
  Folder f;
  Small small{f};
  std::string kept = f / "kept", spool = f / "spool", weights = f / "w.safetensors", undisturbed, socket = f / "s";
  std::string sending = "send 'unix:" + socket + "?patience=60' --from x=" + (f / "x.csv") + " --from y=" + (f / "y.csv") + " --producer-name one --ack durable --quiet";
  std::string learning = small.run() + "--quiet --producer x=unix:" + socket + "#x --producer y=unix:" + socket + "#y --save " + weights + " --checkpoint " + kept + " --every 2steps --resume";

  Live() {
    const Result still = harmonics(small.run() + "--quiet --epochs 1 --producer x=" + (f / "x.csv") + "?shuffle=0 --producer y=" + (f / "y.csv") + " --save " + weights);
    REQUIRE(still.code == 0);
    undisturbed = numbers();
  }
  std::string numbers() const {
    const std::string file = read(weights);
    uint64_t header = 0;
    if (file.size() > sizeof header) std::memcpy(&header, file.data(), sizeof header);
    return file.size() > 8 + header ? file.substr(8 + header) : "";
  }
  void begin_anew() {
    for (const std::string& path : {kept, spool, weights}) fs::remove_all(path);
  }
};

}  // namespace

TEST_CASE("spools: at any call the learner is killed, or its disk fails, samples are neither lost nor learned twice") {
  Live live;
  const std::string what = GENERATE("kill", "tear", "EIO", "ENOSPC", "EINTR", "short");
  const std::string learning = live.learning + " --spool " + live.spool;
  const std::string calls_named = what == "EINTR" ? "open,write,sync,truncate" : "";
  const size_t calls = at_every_call({what, 0, live.spool + "*", false, calls_named}, [&](const Fault& fault) {
    live.begin_anew();
    Background sender(live.f, live.sending);
    const Result first = harmonics_in(variables(live.f, fault), learning);
    const Struck struck = struck_in(live.f);
    CAPTURE(struck.call, struck.path);
    const bool unnoticed = what == "EINTR" || what == "short" || struck.number == 0;
    if (unnoticed) CHECK(first.code == 0);
    else if (kills(what)) CHECK(first.code == kKilled);
    if (first.code != 0) {
      if (!kills(what)) {
        CHECK((first.code == 73 || first.code == 74 || first.code == 75));
        CHECK(has(first.err, what == "EIO" ? "Input/output error" : "No space left on device"));
      }
      CHECK(harmonics(learning).code == 0);
    }
    CHECK(sender.end().code == 0);
    CHECK(live.numbers() == live.undisturbed);
    return struck.number > 0;
  });
  CHECK(calls > 20);
}
