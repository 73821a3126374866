// Live streams whose learner or sender is killed at calls on its sockets or checkpoints.
#include "tests/faults/live.hpp"

using namespace faults;

TEST_CASE(
    "live streams: killed at any call to its socket or checkpoints, a learner goes on and learns every sample once") {
  Live live;
  const std::string what = GENERATE("kill", "tear", "short", "ECONNRESET");
  const std::string calls_named = what == "ECONNRESET" ? "send,receive" : "";
  const size_t calls = at_every_call({what, 0, live.kept + "*:unix@*", false, calls_named}, [&](const Fault& fault) {
    live.begin_anew();
    const Sending sender(live.sending);
    const Result first = harmonics_in(variables(live.f, fault), live.learning);
    const Struck struck = struck_in(live.f);
    CAPTURE(struck.call, struck.path);
    CHECK(first.code == (kills(what) && struck.number > 0 ? kKilled : 0));
    if (first.code != 0) CHECK(journeys::harmonics(live.learning).code == 0);
    CHECK(numbers_in(live.weights) == live.undisturbed);
    return struck.number > 0;
  });
  CHECK(calls >= 4);
}

TEST_CASE("live streams: a sender killed at any call to its socket continues where its receiver is") {
  Live live;
  const std::string what = GENERATE("kill", "tear", "short", "ECONNRESET");
  const size_t calls = at_every_call({what, 0, "unix@*", false, "send,receive"}, [&](const Fault& fault) {
    live.begin_anew();
    const std::string first = variables(live.f, fault);
    const Sending sender(live.sending, first);
    CHECK(journeys::harmonics(live.learning).code == 0);
    CHECK(numbers_in(live.weights) == live.undisturbed);
    return struck_in(live.f).number > 0;
  });
  CHECK(calls >= 4);
}

namespace {

// Kills the learner at each of its first checkpoints. Returns how often it resumed.
int lives_of(const Folder& f, const std::string& run, int kills) {
  int resumed = 0;
  for (int life = 0; life <= kills; ++life) {
    INFO("life " << life);
    const Fault fault{"tear", 1, f / "kept/*", false, "rename"};  // the checkpoint was renamed, nothing more
    const Result end = life < kills ? harmonics_in(variables(f, fault), run) : journeys::harmonics(run);
    CHECK(end.code == (life < kills ? kKilled : 0));
    resumed += has(end.err, "resuming from");
  }
  return resumed;
}

}  // namespace

TEST_CASE("live streams: images and labels over two addresses, killed and resumed, give the same weights") {
  Folder f;
  const std::string a = "unix:" + (f / "a"), b = "unix:" + (f / "b"), live = kSamples + "live_zmq/live.hmx --seed 3 ";
  const std::string sending = "?patience=60' --ack durable --quiet --producer-name one --from ";
  const Sending images("send '" + a + sending + "v=synth:digits?size=3000"),
      labels("send '" + b + sending + "'v=synth:digits?size=3000#label'");
  const std::string run = "run " + live + "--producer image=" + a + " --producer label=" + b + " --checkpoint " +
                          (f / "kept") + " --every 10steps --resume --save " + (f / "w.safetensors");
  CHECK(lives_of(f, run, 3) == 3);
  REQUIRE(journeys::harmonics(
              "run " + live + "--epochs 1 --quiet --save " + (f / "v.safetensors") +
              " --producer 'image=synth:digits?size=3000&shuffle=0' --producer 'label=synth:digits?size=3000#label'")
              .code == 0);
  CHECK(numbers_in(f / "w.safetensors") == numbers_in(f / "v.safetensors"));
}

TEST_CASE("live streams: two cycles over two addresses with edges, killed in either, give the same weights") {
  Folder f;
  std::string flow = read(kSamples + "live_zmq/live.hmx");
  const size_t at = flow.find("  cycle {"), end = flow.rfind('}');
  const std::string cycle = flow.substr(at, end - at);
  flow = flow.substr(0, at) + "  cycle (steps 20) {" + cycle.substr(9) + cycle + "}\n";
  const std::string two = f.write("two.hmx", flow), a = "unix:" + (f / "a"), b = "unix:" + (f / "b"),
                    c = "unix:" + (f / "c");
  const std::string sending = "?patience=60' --ack durable --quiet --producer-name one ";
  {
    const Sending sender("send '" + c + sending +
                         "--from image=synth:digits?size=6000 --from 'label=synth:digits?size=6000#label'");
    REQUIRE(journeys::harmonics("run " + two + " --seed 3 --producer image=" + c + "#image --producer label=" + c +
                                "#label --checkpoint " + (f / "whole") + " --save " + (f / "v.safetensors"))
                .code == 0);
  }
  const std::string run = "run " + two + " --seed 3 --producer 'image=" + a +
                          "?edge=block&hold=200K&late=1m' --producer 'label=" + b + "?edge=drop_oldest' --checkpoint " +
                          (f / "kept") + " --every 12steps --resume --save " + (f / "w.safetensors");
  const Sending images("send '" + a + sending + "--from v=synth:digits?size=6000"),
      labels("send '" + b + sending + "--from 'v=synth:digits?size=6000#label'");
  CHECK(lives_of(f, run, 4) == 4);  // steps 12, 20, 32, 44 or later
  CHECK(numbers_in(f / "w.safetensors") == numbers_in(f / "v.safetensors"));
}
