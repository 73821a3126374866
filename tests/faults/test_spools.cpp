// Live streams spooled to disk: if the learner is killed at any call or its disk fails, no sample is lost or learned
// twice.
#include "tests/faults/live.hpp"

using namespace faults;

TEST_CASE("spools: spooled samples are trained to the end without a sender, with and without a checkpoint") {
  Live live;
  const bool checkpointed = GENERATE(true, false);
  const std::string learning = (checkpointed ? live.learning : live.without_checkpoints) + " --spool " + live.spool;
  {
    const Sending sender(live.sending);
    const Fault fault{"kill", 1, live.f / ".harmonics-*", false, "rename"};  // after the last step
    CHECK(harmonics_in(variables(live.f, fault), learning).code == kKilled);
  }
  const Result alone = journeys::harmonics(learning);
  INFO(alone.err);
  CHECK(alone.code == 0);
  CHECK(numbers_in(live.weights) == live.undisturbed);
}

TEST_CASE("spools: a learner killed at any call, or a failing disk, neither loses samples nor learns them twice") {
  Live live;
  const std::string what = GENERATE("kill", "tear", "EIO", "ENOSPC", "EINTR", "short");
  const std::string learning = live.learning + " --spool " + live.spool;
  const std::string calls_named = what == "EINTR" ? "open,write,sync,truncate" : "";
  const size_t calls = at_every_call({what, 0, live.spool + "*", false, calls_named}, [&](const Fault& fault) {
    live.begin_anew();
    const Sending sender(live.sending);
    const Result first = harmonics_in(variables(live.f, fault), learning);
    const Struck struck = struck_in(live.f);
    CAPTURE(struck.call, struck.path);
    const bool unnoticed = what == "EINTR" || what == "short" || struck.number == 0;
    if (unnoticed)
      CHECK(first.code == 0);
    else if (kills(what))
      CHECK(first.code == kKilled);
    if (first.code != 0 && !kills(what)) {
      CHECK((first.code == 73 || first.code == 74 || first.code == 75));
      CHECK(has(first.err, what == "EIO" ? "Input/output error" : "No space left on device"));
    }
    if (first.code != 0) CHECK(journeys::harmonics(learning).code == 0);
    CHECK(numbers_in(live.weights) == live.undisturbed);
    return struck.number > 0;
  });
  CHECK(calls > 20);
}
