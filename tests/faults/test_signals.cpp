// Runs that are signalled to stop at a given call.
#include "tests/faults/faulted.hpp"

using namespace faults;

namespace {

const std::string kRun =
    "run " + kSamples +
    "mnist.hmx --producer 'synth:digits?size=1500&seed=1' --producer 'synth:digits?size=1500&seed=1#label' --batch 16 ";

size_t checkpoints_in(const std::string& folder) {
  size_t n = 0;
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder))
      n += entry.path().filename().string().rfind("checkpoint-", 0) == 0;
  return n;
}

// Returns the command to resume, as printed by a stopped run.
std::string line_to_go_on(const std::string& err) {
  const size_t at = err.find("to continue:  ");
  REQUIRE(at != std::string::npos);
  return err.substr(at + 14, err.find('\n', at) - at - 14);
}

Result typed(const std::string& line) {
  REQUIRE(line.rfind(kProgram + " ", 0) == 0);
  return journeys::harmonics(line.substr(kProgram.size() + 1));
}

}  // namespace

TEST_CASE(
    "the first Ctrl-C finishes the step, writes a checkpoint and says how to go on, what is typed then ends alike") {
  constexpr int kEpochs = 5;
  for (const int signal : {SIGINT, SIGTERM}) {
    Folder f;
    const std::string weights = f / "w.safetensors",
                      common = kRun + "--epochs " + std::to_string(kEpochs) + " --save " + weights;
    REQUIRE(journeys::harmonics(common + " --quiet").code == 0);
    const std::string undisturbed = read(weights);
    fs::remove(weights);
    // At the end of the second checkpoint.
    const Fault fault{signal == SIGINT ? "SIGINT" : "SIGTERM", 2, f / "my runs/*", false, "rename"};
    const Result stopped = harmonics_in(
        variables(f, fault), common + " --checkpoint '" + (f / "my runs") + "' --every 4steps --keep 2 --json");
    REQUIRE(struck_in(f).number == 2);
    CHECK(stopped.code == 128 + signal);
    CHECK(has(stopped.out, "\"stopped_by\":\"interrupt\""));
    CHECK(number(stopped.out, "resumed_at") == 0);
    CHECK(checkpoints_in(f / "my runs") == 2);
    CHECK(read(weights) != undisturbed);
    const std::string line = line_to_go_on(stopped.err);
    CHECK(has(line, " --checkpoint '" + (f / "my runs") + "' --every 4steps --keep 2 --json --resume"));
    const Result resumed = typed(line);
    CHECK(resumed.code == 0);
    CHECK(number(resumed.out, "resumed_at") == number(stopped.out, "steps"));
    CHECK(number(resumed.out, "steps") == kEpochs * 94);
    CHECK(number(resumed.out, "epochs") == kEpochs);
    CHECK(has(resumed.err, "resuming from " + (f / "my runs") + "/checkpoint-"));
    CHECK(read(weights) == undisturbed);
    // After the end, another resume changes nothing, and more epochs continue training.
    CHECK(typed(line).code == 0);
    CHECK(read(weights) == undisturbed);
    const Result more = typed(line + " --epochs 99");
    CHECK(more.code == 2);  // the flag is repeated
    CHECK(number(journeys::harmonics(kRun + "--epochs " + std::to_string(kEpochs + 1) + " --quiet --json --resume '" +
                                     (f / "my runs") + "'")
                     .out,
                 "steps") == (kEpochs + 1) * 94);
  }
}
