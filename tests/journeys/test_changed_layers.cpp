// Arguments of layers that change while a flow runs: ctl layer, ctl undo.
#include <algorithm>
#include <optional>

#include "tests/journeys/background.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

using namespace journeys;

namespace {

const std::string kChangedFlow =
    "harmonic g {\n  producer x {3}; producer y {2};\n  layer h; layer o {2};\n"
    "  cycle { x -(affine(8), leaky_relu(0.1), dropout(0.25))-> h -> o; o <-(mse)- y; }\n}\n";

// A run that is paused after its first steps. Its flow, data and log are in a folder.
struct ChangedRun {
  Folder f;
  const std::string flow = f.write("g.hmx", kChangedFlow), socket = f / "run.sock", log = f / "log.jsonl";
  std::string data;
  std::optional<Background> run;

  explicit ChangedRun(const std::string& flags = "") {
    std::ostringstream x, y;
    for (int i = 0; i < 96; ++i) {
      x << i % 7 - 3 << ',' << i % 5 - 2 << ',' << i % 11 - 5 << '\n';
      y << i % 7 - i % 5 << ',' << 0.5 * (i % 11) << '\n';
    }
    data = " --producer 'x=" + f.write("x.csv", x.str()) + "' --producer 'y=" + f.write("y.csv", y.str()) +
           "' --epochs 1000000 --batch 16 --threads 1 --no-keep ";
    run.emplace(f, "run " + flow + data + "--for 100s --control " + socket + " --log " + log + " " + flags);
    REQUIRE(run->await([&] { return has(ctl("status").out, "running") && step() > 2; }));
    REQUIRE(has(ctl("pause").out, "paused"));
  }

  Result ctl(const std::string& words) const { return harmonics("ctl " + socket + " " + words); }
  json::object asked(const std::string& words) const { return last_line(ctl(words + " --json").out); }
  int64_t step() const { return asked("status").at("step").to_number<int64_t>(); }
  std::string refused(const std::string& words) const {
    const Result r = ctl(words);
    CHECK(r.code == 1);
    return r.err;
  }
};

json::value change_of(const char* name, const char* before, const char* after) {
  const json::object argument{{"name", name}, {"before", before}, {"after", after}};
  return json::object{{"layer", "h"}, {"arguments", json::array{argument}}};
}

std::vector<std::string> layer_events(const std::string& log) {
  std::vector<std::string> texts;
  for (const std::string& line : lines_of(read(log))) {
    const json::value row = json::parse(line);
    CHECK(SchemaCheck::run(schema("log"), row) == std::vector<std::string>{});
    const json::value* event = row.as_object().if_contains("event");
    if (event && event->as_string() == "layer") texts.emplace_back(row.at("text").as_string());
  }
  return texts;
}

}  // namespace

TEST_CASE("changed layers: a running flow gets other arguments, and the former ones back") {
  ChangedRun r;
  const Result changed = r.ctl("layer h slope=0.5 rate=0.4");
  CHECK(changed.code == 0);
  CHECK(has(changed.out, "h: slope = 0.5 (was 0.1)\nh: rate = 0.4 (was 0.25)\ng: paused, step "));
  const json::object again = r.asked("layer h dropout.rate=0.125");
  CHECK(SchemaCheck::run(schema("ctl"), again) == std::vector<std::string>{});
  CHECK(again.at("done") == "layer");
  CHECK(again.at("change") == change_of("dropout.rate", "0.4", "0.125"));
  CHECK(r.asked("layer h rate=").at("change") == change_of("rate", "0.125", "0.5"));  // the default
  CHECK(r.asked("undo").at("change") == change_of("rate", "0.5", "0.125"));
  const json::object undone = r.asked("undo");
  CHECK(SchemaCheck::run(schema("ctl"), undone) == std::vector<std::string>{});
  CHECK(undone.at("done") == "undo");
  CHECK(undone.at("change") == change_of("dropout.rate", "0.125", "0.4"));
  CHECK(has(r.ctl("undo").out, "h: slope = 0.1 (was 0.5)\nh: rate = 0.25 (was 0.4)\n"));
  CHECK(has(r.refused("undo"), "error: there is no change to take back\n"));
  const int64_t step = r.step();
  CHECK(r.ctl("step 3").code == 0);
  CHECK(r.step() == step + 3);
  CHECK(r.ctl("stop").code == 0);
  CHECK(r.run->end().code == 0);
  const std::vector<std::string> events = layer_events(r.log);
  REQUIRE(events.size() == 6);
  CHECK(events.front() == "'h' has slope = 0.5 (was 0.1), rate = 0.4 (was 0.25)");
  CHECK(events.back() == "'h' has slope = 0.1 (was 0.5), rate = 0.25 (was 0.4)");
}

TEST_CASE("changed layers: refused changes leave the run as it is") {
  ChangedRun r;
  CHECK(has(r.refused("layer hh rate=0.4"), "error: 'g' has no layer 'hh'\nhelp: did you mean 'h'?\n"));
  CHECK(has(r.refused("layer h rat=0.4"), "no function into 'h' has an argument 'rat'\nhelp: did you mean 'rate'?"));
  CHECK(has(r.refused("layer h rate=high"), "'rate' takes a number, not 'high'"));
  CHECK(has(r.refused("layer h rate=1.5"), "rate"));
  CHECK(has(r.refused("layer h width=16"),
            "the change needs other weights: 'h.o.affine.weight' would be f32[2, 16] instead of f32[2, 8]"));
  CHECK(has(r.refused("layer h affine.bias=false"), "the change needs other weights: 'x.h.affine.bias' would not be"));
  CHECK(has(r.refused("layer h slope=0.5 width=16"), "the change needs other weights"));
  CHECK(r.asked("layer h slope=0.75").at("change") == change_of("slope", "0.1", "0.75"));
  CHECK(r.ctl("step 2").code == 0);
  CHECK(r.ctl("layer h").code == 2);
  CHECK(r.ctl("layer h rate").code == 2);
  CHECK(r.ctl("layer h rate=0.1 rate=0.2").code == 2);
  CHECK(r.ctl("step 1 2").code == 2);
  CHECK(r.ctl("stop").code == 0);
  CHECK(r.run->end().code == 0);
  CHECK(layer_events(r.log) == std::vector<std::string>{"'h' has slope = 0.75 (was 0.1)"});
}

TEST_CASE("changed layers: a resumed run makes the changes again and continues bit for bit") {
  ChangedRun r;
  CHECK(r.ctl("layer h slope=0.5").code == 0);
  CHECK(has(r.refused("checkpoint"), "this run keeps no checkpoints"));
  CHECK(r.ctl("stop").code == 0);
  CHECK(r.run->end().code == 0);
  const std::string runs = r.f / "runs";
  r.run.emplace(r.f, "run " + r.flow + r.data + "--for 100s --control " + r.socket + " --checkpoint " + runs +
                         " --save " + (r.f / "whole.safetensors"));
  REQUIRE(r.run->await([&] { return has(r.ctl("status").out, "running") && r.step() > 2; }));
  REQUIRE(has(r.ctl("pause").out, "paused"));
  CHECK(r.ctl("layer h slope=0.5 rate=0.4").code == 0);
  CHECK(r.ctl("layer h slope=0.75").code == 0);
  CHECK(r.ctl("layer h rate=0.9").code == 0);
  CHECK(r.ctl("undo").code == 0);
  CHECK(r.ctl("checkpoint").code == 0);
  const json::object kept = r.asked("status").at("checkpoint").as_object();
  const std::string from = r.f / "from.safetensors";
  fs::copy_file(std::string(kept.at("path").as_string()), from);
  CHECK(has(harmonics("ckpt show " + from).out,
            "  requested   'h' has slope = 0.5, rate = 0.4\n  requested   'h' has slope = 0.75\n"));
  const json::object shown = last_line(harmonics("ckpt show " + from + " --json").out);
  CHECK(SchemaCheck::run(schema("ckpt"), shown) == std::vector<std::string>{});
  CHECK(shown.at("changes") == json::value{{{"layer", "h"}, {"arguments", {{"slope", "0.5"}, {"rate", "0.4"}}}},
                                           {{"layer", "h"}, {"arguments", {{"slope", "0.75"}}}}});
  CHECK(shown.at("learning_rate_set").is_null());
  CHECK(r.ctl("step 12").code == 0);
  const std::string steps = std::to_string(r.step());
  CHECK(r.ctl("stop").code == 0);
  CHECK(r.run->end().code == 0);

  const auto resumed = [&](const std::string& flow, const std::string& to) {
    return harmonics("run " + flow + r.data + "--steps " + steps + " --resume " + from + " --save " + (r.f / to));
  };
  const Result same = resumed(r.flow, "same.safetensors");
  CHECK(same.code == 0);
  CHECK(has(same.err,
            "as requested before the checkpoint: 'h' has slope = 0.5 (was 0.1), rate = 0.4 (was 0.25); 'h' has "
            "slope = 0.75 (was 0.5); 'harmonics ctl PATH undo' takes back the last change"));
  CHECK_FALSE(has(same.err, "the flow's text has changed"));
  CHECK(read(r.f / "same.safetensors") == read(r.f / "whole.safetensors"));
  const Result other = resumed(r.f.write("other.hmx", "# another text\n" + kChangedFlow), "other.safetensors");
  CHECK(other.code == 0);
  CHECK(has(other.err,
            "changes of layers that were requested before the checkpoint are dropped: the flow's text has "
            "changed"));
  CHECK(read(r.f / "other.safetensors") != read(r.f / "whole.safetensors"));
}
