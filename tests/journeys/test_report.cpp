// Output of a run: its curve, page and log, and its events.
#include "tests/journeys/background.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

#include <set>

using namespace journeys;

namespace {

// Trains y = 2 x in steps of all four samples.
struct Steep {
  Folder f;
  std::string flow = f.write("g.hmx",
                             "harmonic g { producer x; producer y; layer o; cycle (epochs 300, batch=4) { x "
                             "-(affine)-> o; o <-(mse)- y; } }\n");
  std::string x = f.write("x.csv", "1\n2\n3\n4\n"), y = f.write("y.csv", "2\n4\n6\n8\n");

  Result run(const std::string& more) const {
    return harmonics("run " + flow + " --producer " + x + " --producer " + y + " --quiet " + more);
  }
};

std::vector<json::value> rows_of(const std::string& path) {
  std::vector<json::value> rows;
  const std::string whole = read(path);
  std::stringstream text(whole.substr(0, whole.rfind('\n') + 1));  // a run may be writing the next line
  for (std::string line; std::getline(text, line);) rows.push_back(json::parse(line));
  return rows;
}

}  // namespace

TEST_CASE("curve: begins where the run began, and marks values beyond its axis") {
  const Steep steep;
  const std::string svg = steep.f / "c.svg";
  REQUIRE(steep.run("--optimizer 'adam(lr=0.01)' --plot " + svg).code == 0);
  // The first point is the highest: 1/1.08 of the axis, which is 190 high and begins at 40.
  const std::string slow = read(svg);
  size_t curves = 0;
  for (size_t at = slow.find("points=\""); at != std::string::npos; at = slow.find("points=\"", at + 1), ++curves)
    CHECK(slow.compare(at, 17, "points=\"66.1,54.1") == 0);
  CHECK(curves == 2);
  CHECK_FALSE(has(slow, "class=\"beyond\""));

  REQUIRE(steep.run("--optimizer 'sgd(lr=0.1)' --plot " + svg).code == 0);
  const std::string fast = read(svg);
  CHECK(has(fast, "class=\"beyond\""));
  CHECK(has(fast, " at step 1</text>"));
}

TEST_CASE("pictures: a name with the ending of another format is refused") {
  const Steep steep;
  for (const char* flag : {"--plot", "--confusion", "--report"}) {
    const Result r =
        steep.run(std::string(flag) + " " + (steep.f / "c.png") + " --test " + steep.x + " --test " + steep.y);
    CHECK(r.code == 2);
    CHECK(has(r.err, "c.png' does not end in ."));
    CHECK_FALSE(fs::exists(steep.f / "c.png"));
  }
}

TEST_CASE("report: the command can be copied, the worst predictions come first, and weights are counted") {
  Folder f;
  const std::string page = f / "r.html";
  REQUIRE(
      harmonics("run " + kSamples +
                "mnist.hmx --producer 'synth:digits?size=400&seed=1' --producer 'synth:digits?size=400&seed=1#label' "
                "--test 'synth:digits?size=300&seed=2' --test 'synth:digits?size=300&seed=2#label' --epochs 1 --quiet "
                "--report " +
                page)
          .code == 0);
  const std::string html = read(page);
  CHECK(has(html, "'synth:digits?size=400&amp;seed=1'"));
  CHECK(has(html, "<th>weights trained</th><td>311,650</td>"));
  const size_t worst = html.find("The worst of the first 300"), first = html.find("The first ones");
  REQUIRE(worst != std::string::npos);
  REQUIRE(first != std::string::npos);
  CHECK(worst < first);
  CHECK(html.compare(html.find("<figure", worst), 22, "<figure class=\"wrong\">") == 0);
  CHECK(html.substr(worst, first - worst).find("class=\"right\"") == std::string::npos);
  CHECK(has(html.substr(first), "class=\"right\""));
}

TEST_CASE("events: changes by control are in the log and on the page") {
  Folder f;
  const std::string socket = f / "run.sock", log = f / "l.jsonl", page = f / "r.html", runs = f / "runs";
  Background run(f, "run " + kLongRun + "--control " + socket + " --log " + log + " --log " + (f / "l.csv") +
                        " --checkpoint " + runs + " --report " + page);
  const auto state = [&] { return harmonics("ctl " + socket + " status").out; };
  REQUIRE(run.await([&] { return has(state(), "running"); }));
  for (const char* what : {"lr 0.0005", "pause", "resume", "checkpoint", "lr schedule"}) {
    INFO(what);
    REQUIRE(harmonics("ctl " + socket + " " + what).code == 0);
    // A command takes effect between two steps, so the next is sent after the effect of this one is visible.
    const bool pauses = std::string(what) == "pause";
    REQUIRE(run.await([&] { return has(state(), pauses ? "paused" : "running"); }));
  }
  const auto kinds = [&] {
    std::set<std::string> all;
    for (const json::value& row : rows_of(log))
      if (const json::value* event = row.as_object().if_contains("event")) all.insert(std::string(event->as_string()));
    return all;
  };
  REQUIRE(run.await([&] { return kinds().size() == 4 && has(read(log), "follows the schedule again"); }));
  run.signal(SIGTERM);
  const Result r = run.end();
  CHECK(r.code == 143);
  CHECK(kinds() == std::set<std::string>{"checkpoint", "learning_rate", "pause", "resume"});
  for (const json::value& row : rows_of(log))
    for (const std::string& wrong : SchemaCheck::run(schema("log"), row)) FAIL_CHECK(wrong);
  CHECK_FALSE(has(read(f / "l.csv"), "event"));
  const std::string html = read(page);
  for (const char* text : {"<h2>Events</h2>", "the learning rate was set to 0.0005",
                           "the learning rate follows the schedule again", "the run was paused", "the run went on"})
    CHECK(has(html, text));
  CHECK(has(html, "checkpoint " + runs));
}

TEST_CASE("prompts: a character unknown to the model is printed whole in the error, after no other output") {
  Folder f;
  std::string verse;
  for (int i = 0; i < 20; ++i) verse += "the rain falls on the sea and the sea falls on the shore.\n";
  const std::string weights = f / "w.safetensors";
  REQUIRE(harmonics("run " + kSamples + "char_lstm.hmx --producer 'file:" + f.write("verse.txt", verse) +
                    "?window=32&shift=7' --quiet --batch 16 --steps 1 --save " + weights)
              .code == 0);
  const Result r = harmonics("infer " + kSamples + "char_lstm.hmx --weights " + weights + " --prompt 'Ünïcode'");
  CHECK(r.code == 2);
  CHECK(r.out.empty());
  CHECK(has(r.err, "the prompt has 'Ü' at byte 0"));
}
