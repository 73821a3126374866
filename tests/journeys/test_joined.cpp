// Live streams of several addresses: joined by number, with edges that drop, killed and gone on with.
#include "tests/journeys/background.hpp"

#include <cstring>
#include <sstream>

using namespace journeys;

namespace {

const char* const kPairs = "harmonic pairs { producer x; producer y; consumer cx; consumer cy; cycle { x -> cx; y -> cy; } }";

std::string counting(const Folder& f, const std::string& name, int from, int to) {
  std::string rows;
  for (int i = from; i < to; ++i) rows += std::to_string(i) + "\n";
  return f.write(name, rows);
}

std::vector<int> column(const std::string& file) {
  std::vector<int> values;
  std::istringstream rows(read(file));
  for (double v; rows >> v;) values.push_back(static_cast<int>(v));
  return values;
}

std::string consumers(const Folder& f) { return " --consumer cx=file:" + (f / "cx.csv") + " --consumer cy=file:" + (f / "cy.csv"); }

// Without every third and fourth frame, as the prefixes say where they are (docs/wire.md).
std::string some_frames(const std::string& all) {
  std::string some;
  for (size_t at = 0, number = 0; at + 24 <= all.size(); ++number) {
    uint32_t header = 0;
    uint64_t payload = 0;
    std::memcpy(&header, all.data() + at + 8, sizeof header);
    std::memcpy(&payload, all.data() + at + 12, sizeof payload);
    const size_t size = (24 + header + 7) / 8 * 8 + payload;
    if (number % 4 < 2) some += all.substr(at, size);
    at += size;
  }
  return some;
}

uint64_t number_after(const std::string& text, const std::string& key) {
  const size_t at = text.rfind("\"" + key + "\":");  // of the last stream
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size() + 3, nullptr, 10);  // null is 0 too
}

}  // namespace

TEST_CASE("an edge that drops: pairs stay pairs, and what lost its partner is kept") {
  Folder f, own;
  const std::string flow = f.write("pairs.hmx", kPairs), data = counting(f, "n.csv", 0, 3000);
  const std::string from = " --from 'v=file:" + data + "?as=number' --quiet";
  const std::string run = "infer " + flow + " --producer 'x=unix:" + (f / "a") + "?edge=drop_oldest&hold=800' --producer 'y=unix:" + (f / "b") + "?batch=16' --dead-letters " + (f / "dead") + consumers(f);
  Background receiver(f, run);
  Background slow(own, "send 'unix:" + (f / "b") + "?patience=30' --rate 1500" + from);
  Folder other;
  Background fast(other, "send 'unix:" + (f / "a") + "?patience=30'" + from);
  CHECK(fast.end().code == 0);
  CHECK(slow.end().code == 0);
  const Result end = receiver.end();
  INFO(end.err);
  REQUIRE(end.code == 0);
  const std::vector<int> x = column(f / "cx.csv"), y = column(f / "cy.csv");
  CHECK(x == y);
  CHECK(x.size() > 150);
  CHECK(x.size() < 2900);
  CHECK(x.back() == 2999);
  CHECK(std::is_sorted(x.begin(), x.end()));
  // Those of the slow stream whose partners made room, each once.
  REQUIRE(harmonics("send file:" + (f / "left.csv") + " --from 'file:" + (f / "dead/y.hxs") + "'").code == 0);
  std::vector<int> all = column(f / "left.csv");
  CHECK(!all.empty());
  all.insert(all.end(), y.begin(), y.end());
  std::sort(all.begin(), all.end());
  CHECK(all.size() == 3000);
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  CHECK(!fs::exists(f / "dead/x.hxs"));
  CHECK(has(end.err, "samples of 'x': " + std::to_string(3000 - y.size()) + " dropped on the edge"));
  CHECK(has(end.err, "samples of 'y': " + std::to_string(3000 - y.size()) + " without a partner"));
}

TEST_CASE("streams of files that were received are joined by number, by last, or stop") {
  Folder f;
  const std::string flow = f.write("pairs.hmx", kPairs), data = counting(f, "n.csv", 0, 600);
  const Result frames = harmonics("send 'stdout:?format=hxs' --quiet --rate 800 --from 'v=file:" + data + "?as=number'");
  REQUIRE(frames.code == 0);
  f.write("all.hxs", frames.out);
  f.write("some.hxs", some_frames(frames.out));
  const std::string both = " --producer 'x=file:" + (f / "all.hxs") + "' --producer 'y=file:" + (f / "some.hxs") + "?join=number";
  REQUIRE(harmonics("infer " + flow + both + "'" + consumers(f)).code == 0);
  const std::vector<int> left = column(f / "cy.csv");
  CHECK(left.size() > 100);
  CHECK(left.back() - left.front() + 1 > static_cast<int>(left.size()));
  CHECK(column(f / "cx.csv") == left);
  REQUIRE(harmonics("infer " + flow + both + "&unpaired=last'" + consumers(f)).code == 0);
  const std::vector<int> x = column(f / "cx.csv"), y = column(f / "cy.csv");
  CHECK(x.size() == static_cast<size_t>(left.back() - left.front() + 1));
  for (size_t i = 0; i < x.size(); ++i) {
    CHECK(x[i] == left.front() + static_cast<int>(i));
    CHECK(y[i] == *std::prev(std::upper_bound(left.begin(), left.end(), x[i])));
  }
  const Result stopped = harmonics("infer " + flow + both + "&unpaired=stop'" + consumers(f));
  CHECK(stopped.code == 65);
  CHECK(has(stopped.err, "of 'x' has no partner in 'y'"));
  CHECK(has(stopped.err, "unpaired=drop leaves such samples out"));
}

TEST_CASE("a partner that stays away: late=, the last one stands in, and the status counts") {
  Folder f, own, other;
  const std::string flow = f.write("pairs.hmx", kPairs), data = counting(f, "n.csv", 0, 6000);
  Background receiver(f, "run " + flow + " --producer 'x=unix:" + (f / "a") + "?late=20ms&unpaired=last&batch=1' --producer 'y=unix:" + (f / "b") + "' --control " + (f / "control") + consumers(f));
  Background sparse(own, "send 'unix:" + (f / "b") + "?patience=30' --quiet --rate 2 --from 'v=file:" + data + "?as=number'");
  Background steady(other, "send 'unix:" + (f / "a") + "?patience=30' --quiet --rate 100 --from 'v=file:" + data + "?as=number'");
  const auto status = [&] { return harmonics("ctl " + (f / "control") + " status --json").out; };
  CHECK(receiver.await([&] { return number_after(status(), "filled") >= 3; }));
  CHECK(has(harmonics("ctl " + (f / "control") + " status").out, " filled in"));
  receiver.signal(SIGINT);
  receiver.end();
  sparse.signal(SIGKILL), steady.signal(SIGKILL);
  sparse.end(), steady.end();
  const std::vector<int> x = column(f / "cx.csv"), y = column(f / "cy.csv");
  REQUIRE(x.size() == y.size());
  REQUIRE(x.size() >= 3);
  for (size_t i = 0; i < x.size(); ++i) {
    CHECK(x[i] == static_cast<int>(i));
    CHECK(y[i] <= x[i]);
  }
  CHECK(y.back() < x.back());
}

TEST_CASE("what joining and edges do not understand is refused with what to write") {
  Folder f;
  const std::string flow = f.write("pairs.hmx", kPairs), data = counting(f, "n.csv", 0, 5);
  const auto error = [&](const std::string& x) {
    const Result r = harmonics("infer " + flow + " --producer 'x=file:" + data + "?" + x + "' --producer 'y=file:" + data + "'" + consumers(f));
    CHECK(r.code == 2);
    return r.err;
  };
  CHECK(has(error("edge=newest"), "option 'edge=newest' of 'x' wants block, drop_oldest or latest"));
  CHECK(has(error("edge=latest"), "'x' is no live stream: edge= and hold= say what becomes of samples that arrive too fast"));
  CHECK(has(error("hold=much"), "wants the most bytes that wait, such as 16M"));
  CHECK(has(error("join=name"), "wants order or number"));
  CHECK(has(error("join=number"), "stream 'x' cannot be joined by number: its samples have none"));
  CHECK(has(error("unpaired=forget"), "wants drop, last or stop"));
  CHECK(has(error("late=soon"), "wants how long a sample waits for the others, such as 500ms or 5s"));
  CHECK(has(error("late=5s"), "late= is for live streams"));
  const Result limit = harmonics("infer " + flow + " --dead-letters-limit 1M --producer x=" + data + " --producer y=" + data + consumers(f));
  CHECK(limit.code == 2);
  CHECK(has(limit.err, "--dead-letters-limit says nothing without --dead-letters DIR"));
}

TEST_CASE("pictures and labels over two addresses: killed, gone on, the same weights") {
  Folder f, own, other;
  const std::string a = "unix:" + (f / "a"), b = "unix:" + (f / "b");
  const std::string live = kSamples + "live_zmq/live.hmx --seed 3 ";
  const std::string run = "run " + live + "--producer image=" + a + " --producer label=" + b + " --checkpoint " + (f / "kept") + " --every 10steps --resume --save " + (f / "w.safetensors");
  const std::string sending = "?patience=60' --ack durable --quiet --rate 1500 --producer-name one --from ";
  Background images(own, "send '" + a + sending + "v=synth:digits?size=3000");
  Background labels(other, "send '" + b + sending + "'v=synth:digits?size=3000#label'");
  for (const int ms : {700, 500, 600}) {
    Folder its;
    Background learner(its, run);
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    learner.signal(SIGKILL);
    learner.end();
  }
  const Result end = harmonics(run);
  INFO(end.err);
  CHECK(end.code == 0);
  CHECK(has(end.err, "resuming from"));
  CHECK(images.end().code == 0);
  CHECK(labels.end().code == 0);
  REQUIRE(harmonics("run " + live + "--epochs 1 --quiet --save " + (f / "v.safetensors") + " --producer 'image=synth:digits?size=3000&shuffle=0' --producer 'label=synth:digits?size=3000#label'").code == 0);
  const auto numbers = [](const std::string& file) {
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    return file.substr(8 + header);
  };
  CHECK(numbers(read(f / "w.safetensors")) == numbers(read(f / "v.safetensors")));
}

TEST_CASE("two cycles over two addresses with edges: killed in either, gone on, the same weights") {
  Folder f, own, other;
  std::string flow = read(kSamples + "live_zmq/live.hmx");
  const size_t at = flow.find("  cycle {"), end = flow.rfind('}');
  const std::string cycle = flow.substr(at, end - at);
  flow = flow.substr(0, at) + "  cycle (steps 20) {" + cycle.substr(9) + cycle + "}\n";
  const std::string two = f.write("two.hmx", flow), a = "unix:" + (f / "a"), b = "unix:" + (f / "b"), c = "unix:" + (f / "c");
  const std::string sending = "?patience=60' --ack durable --quiet --producer-name one --rate ";
  {
    const Folder its;
    Background sender(its, "send '" + c + sending + "100000 --from image=synth:digits?size=6000 --from 'label=synth:digits?size=6000#label'");
    REQUIRE(harmonics("run " + two + " --seed 3 --producer image=" + c + "#image --producer label=" + c + "#label --checkpoint " + (f / "whole") + " --save " + (f / "v.safetensors")).code == 0);
    CHECK(sender.end().code == 0);
  }
  const std::string run = "run " + two + " --seed 3 --producer 'image=" + a + "?edge=block&hold=200K&late=1m' --producer 'label=" + b + "?edge=drop_oldest' --checkpoint " + (f / "kept") +
                          " --every 4steps --resume --save " + (f / "w.safetensors");
  Background images(own, "send '" + a + sending + "1000 --from v=synth:digits?size=6000");
  Background labels(other, "send '" + b + sending + "1000 --from 'v=synth:digits?size=6000#label'");
  const auto newest = [&] {
    std::string name;
    for (const auto& entry : fs::directory_iterator(f / "kept"))
      if (entry.path().filename().string().starts_with("checkpoint-")) name = std::max(name, entry.path().filename().string());  // others are not whole
    return name;
  };
  fs::create_directory(f / "kept");
  int kills = 0, resumed = 0;
  for (bool over = false; !over;) {
    Folder its;
    Background learner(its, run);
    const std::string before = newest();
    if (kills < 3 && learner.await([&] { return newest() > before; })) learner.signal(SIGKILL);
    const Result end = learner.end();
    over = end.code != 128 + SIGKILL;
    kills += !over;
    resumed += has(end.err, "resuming from");
    if (over) CHECK(end.code == 0);
  }
  CHECK(kills == 3);
  CHECK(resumed >= kills);
  CHECK(images.end().code == 0);
  CHECK(labels.end().code == 0);
  const auto numbers = [](const std::string& file) {
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    return file.substr(8 + header);
  };
  CHECK(numbers(read(f / "w.safetensors")) == numbers(read(f / "v.safetensors")));
}
