// Live streams of several addresses: joined by number, with edges that drop samples, killed and resumed.
#include "tests/journeys/background.hpp"

#include <cstring>
#include <sstream>

using namespace journeys;

namespace {

const char* const kPairs =
    "harmonic pairs { producer x; producer y; consumer cx; consumer cy; cycle { x -> cx; y -> cy; } }";

std::string counting(const Folder& f, const std::string& name, int from, int to) {
  std::string rows;
  for (int i = from; i < to; ++i) rows += std::to_string(i) + "\n";
  return f.write(name, rows);
}

std::vector<int> column_in(const std::string& file) {
  std::vector<int> values;
  std::istringstream rows(read(file));
  for (double v; rows >> v;) values.push_back(static_cast<int>(v));
  return values;
}

std::string consumers(const Folder& f) {
  return " --consumer cx=file:" + (f / "cx.csv") + " --consumer cy=file:" + (f / "cy.csv");
}

// Removes every third and fourth frame, found by the length prefixes (docs/wire.md), and counts them.
std::string some_frames(const std::string& all, size_t& number) {
  std::string some;
  number = 0;
  for (size_t at = 0; at + 24 <= all.size(); ++number) {
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

uint64_t first_number_after(const std::string& text, const std::string& key) {
  const size_t at = text.find("\"" + key + "\":");
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size() + 3, nullptr, 10);
}

uint64_t number_after(const std::string& text, const std::string& key) {
  const size_t at = text.rfind("\"" + key + "\":");  // the last stream's
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size() + 3, nullptr, 10);  // null is 0 too
}

}  // namespace

TEST_CASE("joining: an edge that drops keeps pairs together, and samples that lost their partner are saved") {
  Folder f, own;
  const std::string flow = f.write("pairs.hmx", kPairs), data = counting(f, "n.csv", 0, 3000);
  const std::string from = " --from 'v=file:" + data + "?as=number' --quiet";
  const std::string run = "run " + flow + " --producer 'x=unix:" + (f / "a") +
                          "?edge=drop_oldest&hold=800' --producer 'y=unix:" + (f / "b") + "?batch=1' --dead-letters " +
                          (f / "dead") + " --control " + (f / "control") + consumers(f);
  Background receiver(f, run);
  Folder other;
  Background fast(other, "send 'unix:" + (f / "a") + "?patience=60'" + from);
  const std::string sending = "send 'unix:" + (f / "b") + "?patience=60' --producer-name one" + from;
  {
    Background slow(own, sending + " --rate 1");  // until the edge is full and drops the rest
    const auto status = [&] { return harmonics("ctl " + (f / "control") + " status --json").out; };
    REQUIRE(receiver.await([&] { return first_number_after(status(), "dropped") > 2700; }));
    slow.signal(SIGKILL);
    slow.end();
  }
  CHECK(fast.end().code == 0);
  CHECK(harmonics(sending).code == 0);
  const Result end = receiver.end();
  INFO(end.err);
  REQUIRE(end.code == 0);
  const std::vector<int> x = column_in(f / "cx.csv"), y = column_in(f / "cy.csv");
  CHECK(x == y);
  CHECK(x.size() > 150);
  CHECK(x.size() < 2900);
  CHECK(x.back() == 2999);
  CHECK(std::is_sorted(x.begin(), x.end()));
  // The samples of the slow stream whose partners were dropped, each once.
  REQUIRE(harmonics("send file:" + (f / "left.csv") + " --from 'file:" + (f / "dead/y.hxs") + "'").code == 0);
  std::vector<int> all = column_in(f / "left.csv");
  CHECK(!all.empty());
  all.insert(all.end(), y.begin(), y.end());
  std::sort(all.begin(), all.end());
  CHECK(all.size() == 3000);
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  CHECK(!fs::exists(f / "dead/x.hxs"));
  CHECK(has(end.err, "samples of 'x': " + std::to_string(3000 - y.size()) + " dropped on the edge"));
  CHECK(has(end.err, "samples of 'y': " + std::to_string(3000 - y.size()) + " without a partner"));
  CHECK(has(end.err, " unpaired samples of 'y' in " + (f / "dead/y.hxs")));
}

TEST_CASE("joining: received files are joined by number, by last, or stop") {
  Folder f;
  const std::string flow = f.write("pairs.hmx", kPairs), data = counting(f, "n.csv", 0, 600);
  // Samples that arrive together share a frame, so a lower rate gives more frames.
  size_t count = 0;
  for (int rate = 1600; count < 16; rate /= 2) {
    REQUIRE(rate > 10);
    const Result frames = harmonics("send 'stdout:?format=hxs' --quiet --rate " + std::to_string(rate) +
                                    " --from 'v=file:" + data + "?as=number'");
    REQUIRE(frames.code == 0);
    f.write("all.hxs", frames.out);
    f.write("some.hxs", some_frames(frames.out, count));
  }
  const std::string both =
      " --producer 'x=file:" + (f / "all.hxs") + "' --producer 'y=file:" + (f / "some.hxs") + "?join=number";
  REQUIRE(harmonics("infer --untrained " + flow + both + "'" + consumers(f)).code == 0);
  const std::vector<int> left = column_in(f / "cy.csv");
  REQUIRE(left.size() > 2);
  CHECK(left.back() - left.front() + 1 > static_cast<int>(left.size()));
  CHECK(column_in(f / "cx.csv") == left);
  REQUIRE(harmonics("infer --untrained " + flow + both + "&unpaired=last'" + consumers(f)).code == 0);
  const std::vector<int> x = column_in(f / "cx.csv"), y = column_in(f / "cy.csv");
  CHECK(x.size() == static_cast<size_t>(left.back() - left.front() + 1));
  for (size_t i = 0; i < x.size(); ++i) {
    CHECK(x[i] == left.front() + static_cast<int>(i));
    CHECK(y[i] == *std::prev(std::upper_bound(left.begin(), left.end(), x[i])));
  }
  const Result stopped = harmonics("infer --untrained " + flow + both + "&unpaired=stop'" + consumers(f));
  CHECK(stopped.code == 65);
  CHECK(has(stopped.err, "of 'x' has no partner in 'y'"));
  CHECK(has(stopped.err, "unpaired=drop drops such samples"));
}

TEST_CASE("joining: with late= the last sample replaces a missing partner, and the status counts it") {
  Folder f, own, other;
  const std::string flow = f.write("pairs.hmx", kPairs), data = counting(f, "n.csv", 0, 6000);
  Background receiver(f, "run " + flow + " --producer 'x=unix:" + (f / "a") +
                             "?late=20ms&unpaired=last&batch=1' --producer 'y=unix:" + (f / "b") + "' --control " +
                             (f / "control") + consumers(f));
  Background sparse(
      own, "send 'unix:" + (f / "b") + "?patience=30' --quiet --rate 2 --from 'v=file:" + data + "?as=number'");
  Background steady(
      other, "send 'unix:" + (f / "a") + "?patience=30' --quiet --rate 100 --from 'v=file:" + data + "?as=number'");
  const auto status = [&] { return harmonics("ctl " + (f / "control") + " status --json").out; };
  CHECK(receiver.await([&] { return number_after(status(), "filled") >= 3; }));
  CHECK(has(harmonics("ctl " + (f / "control") + " status").out, " filled in"));
  receiver.signal(SIGINT);
  receiver.end();
  sparse.signal(SIGKILL), steady.signal(SIGKILL);
  sparse.end(), steady.end();
  const std::vector<int> x = column_in(f / "cx.csv"), y = column_in(f / "cy.csv");
  REQUIRE(x.size() == y.size());
  REQUIRE(x.size() >= 3);
  for (size_t i = 0; i < x.size(); ++i) {
    CHECK(x[i] == x[0] + static_cast<int>(i));  // samples before the first partner have none
    CHECK(y[i] <= x[i]);
  }
  CHECK(y.back() < x.back());
}

TEST_CASE("joining: invalid options of joining and edges are refused with a remedy") {
  Folder f;
  const std::string flow = f.write("pairs.hmx", kPairs), data = counting(f, "n.csv", 0, 5);
  const auto error = [&](const std::string& x) {
    const Result r = harmonics("infer --untrained " + flow + " --producer 'x=file:" + data + "?" + x +
                               "' --producer 'y=file:" + data + "'" + consumers(f));
    CHECK(r.code == 2);
    return r.err;
  };
  CHECK(has(error("edge=newest"), "option 'edge=newest' of 'x' must be block, drop_oldest or latest"));
  CHECK(has(error("edge=latest"), "edge= and hold= apply to live streams, and 'x' is not live"));
  CHECK(has(error("hold=much"), "must be a number of bytes, such as 16M"));
  CHECK(has(error("join=name"), "must be order or number"));
  CHECK(has(error("join=number"), "stream 'x' cannot be joined by number: its samples have none"));
  CHECK(has(error("unpaired=forget"), "must be drop, last, stop or refuse"));
  CHECK(has(error("late=soon"), "must be a duration such as 500ms or 5s"));
  CHECK(has(error("late=5s"), "late= applies to live streams"));
  const Result limit = harmonics("infer --untrained " + flow + " --dead-letters-limit 1M --producer x=" + data +
                                 " --producer y=" + data + consumers(f));
  CHECK(limit.code == 2);
  CHECK(has(limit.err, "--dead-letters-limit has no effect without --dead-letters DIR"));
}
