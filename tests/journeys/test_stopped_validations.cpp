// Runs that are signalled while they validate or test.
#include "tests/journeys/shell.hpp"

#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

using namespace journeys;

namespace {

// Three epochs of eight steps. The producer "failing:stop" raises SIGTERM once, before sample `good` of a
// pass, "failing:twice" raises it twice and then waits forever.
struct Validated {
  Folder f;
  std::string common, runs, log;

  Validated() : runs(f / "runs"), log(f / "l.jsonl") {
    const std::string flow = f.write("g.hmx",
                                     "harmonic g { producer x; producer y; layer o; cycle (epochs 3, batch=8) { x "
                                     "-(affine)-> o; o <-(mse)- y; } }\n");
    common = "run " + flow + " --plugin " + HARMONICS_BINARY_DIR + "/test_plugins/libexits.so --producer 'x=" + kGood +
             "&shuffle=0' --producer 'y=" + kGood + "&shuffle=0' ";
  }
  static std::string data(const std::string& flag, const std::string& x) {
    return flag + " 'x=" + x + "' " + flag + " 'y=" + kGood + (has(x, "repeat") ? kEndless : "") + "' ";
  }
  // Returns the weights of an uninterrupted run.
  std::string whole() const {
    const std::string path = f / "whole.safetensors";
    REQUIRE(harmonics(common + data("--validate", kGood) + "--quiet --save " + path).code == 0);
    return read(path);
  }
  inline static const std::string kGood = "failing:stop?good=1000";
  inline static const std::string kEndless = "&repeat=1000000000";  // days
};

size_t lines_with(const std::string& text, const std::string& word) {
  size_t n = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) n += has(line, word);
  return n;
}

}  // namespace

TEST_CASE("stop: the first signal ends a long validation, which leaves no figures, and a checkpoint that continues") {
  const Validated v;
  const std::string checkpoint = "--checkpoint " + v.runs + " --every 1h --log " + v.log + " --json ",
                    report = v.f / "r.html", saved = v.f / "w.safetensors";
  const Result stopped = harmonics(v.common + checkpoint + "--report " + report + " " +
                                   Validated::data("--validate", "failing:stop?good=50" + Validated::kEndless));
  CHECK(stopped.code == 143);
  CHECK(SchemaCheck::run(schema("run"), json::parse(stopped.out)).empty());
  CHECK(has(stopped.out, "\"stopped_by\":\"interrupt\""));
  CHECK(has(stopped.out, "\"validation\":null"));
  CHECK(number(stopped.out, "steps") == 8);
  CHECK(lines_with(read(v.log), "\"epoch\"") > 0);
  CHECK_FALSE(has(read(v.log), "val.loss\":"));
  CHECK(fs::exists(report));
  CHECK(has(stopped.err, "the run ended before its first validation"));
  CHECK(has(stopped.err, "to continue:  "));

  const Result resumed = harmonics(v.common + checkpoint + "--resume --save " + saved + " " +
                                   Validated::data("--validate", Validated::kGood));
  CHECK(resumed.code == 0);
  CHECK(number(resumed.out, "resumed_at") == 8);
  CHECK(number(resumed.out, "steps") == 24);
  CHECK(number(resumed.out, "epochs") == 3);
  CHECK(read(saved) == v.whole());
}

TEST_CASE(
    "stop: the second signal does not wait for a validation, whose stream gives nothing, and writes a checkpoint") {
  const Validated v;
  const std::string checkpoint = "--checkpoint " + v.runs + " --every 1h ", saved = v.f / "w.safetensors";
  const Result stopped = harmonics(v.common + checkpoint + Validated::data("--validate", "failing:twice?good=50"));
  CHECK(stopped.code == 143);
  CHECK(has(stopped.err, "to continue:  "));
  CHECK(harmonics("ckpt verify " + v.runs).code == 0);
  const Result resumed = harmonics(v.common + checkpoint + "--resume --json --save " + saved + " " +
                                   Validated::data("--validate", Validated::kGood));
  CHECK(resumed.code == 0);
  CHECK(number(resumed.out, "resumed_at") == 8);
  CHECK(number(resumed.out, "steps") == 24);
  CHECK(read(saved) == v.whole());
}

TEST_CASE("stop: a signal within the test after training ends it, and all outputs are written") {
  const Validated v;
  const std::string saved = v.f / "w.safetensors", report = v.f / "r.html";
  const std::string common = v.common + "--json --save " + saved + " --report " + report + " ";
  const Result stopped = harmonics(common + Validated::data("--test", "failing:stop?good=50" + Validated::kEndless));
  CHECK(stopped.code == 143);
  CHECK(SchemaCheck::run(schema("run"), json::parse(stopped.out)).empty());
  CHECK(has(stopped.out, "\"stopped_by\":\"interrupt\""));
  CHECK(has(stopped.out, "\"test\":null"));
  CHECK(number(stopped.out, "steps") == 24);
  CHECK(has(stopped.err, "note: the test was skipped: the run ended early"));
  CHECK(read(saved) == v.whole());
  CHECK(fs::exists(report));

  fs::remove(saved);
  const Result twice = harmonics(common + Validated::data("--test", "failing:twice?good=50"));
  CHECK(twice.code == 143);
  CHECK(fs::exists(saved));
}
