// Runs of live streams: positions in checkpoints, acknowledged samples, and interrupted waiting.
#include <catch2/catch.hpp>

#include <condition_variable>
#include <future>

#include <harmonics/async.hpp>

#include "engine/checkpoint/checkpointer.hpp"
#include "tests/engine/runtime/live_rows.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using namespace std::chrono_literals;

namespace {

// A sender of numbered samples, which it keeps until they are durable.
class Sender {
 public:
  void arrive(uint64_t until) {
    const std::lock_guard<std::mutex> lock(mutex);
    arrived = std::max(arrived, until);
    changed.notify_all();
  }
  uint64_t durable_until() {
    const std::lock_guard<std::mutex> lock(mutex);
    return durable;
  }

  std::mutex mutex;
  std::condition_variable changed;
  uint64_t arrived = 0, durable = 0;
  bool over = false;                           // no further samples follow
  bool end_told = false, end_durable = false;  // a position contained the end; the end was acknowledged
  uint64_t may_keep = 1 << 30;                 // samples
  bool drops = false;                          // durable samples are dropped, and counted as lost when requested again
  uint64_t lost = 0;
};

// A connection to the sender: samples that were durable when it began cannot be requested again.
class Live final : public LiveRows {
 public:
  explicit Live(Sender& sender) : sender_(sender) {}
  HTensor next() override {
    std::unique_lock<std::mutex> lock(sender_.mutex);
    sender_.changed.wait(lock, [this] { return at_ < sender_.arrived || sender_.over || cancelled_; });
    if (at_ >= sender_.arrived) return {};
    return sample(at_++);
  }
  bool restore(uint64_t index, const std::string& position) override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    const std::string at = index ? "sample " + std::to_string(index) : "";
    if (position != at && position != at + " over")
      throw Error(ErrorKind::Stream, "that is not where it stood: " + position);
    if (index < sender_.durable && !sender_.drops)
      throw Error(ErrorKind::Stream, "samples were forgotten that are asked for again");
    at_ = std::max(index, sender_.durable);
    sender_.lost += at_ - index;
    return true;
  }
  std::string position(uint64_t index) override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    const bool ends = sender_.over && index == sender_.arrived;
    sender_.end_told |= ends;
    return "sample " + std::to_string(index) + (ends ? " over" : "");
  }
  void durable(uint64_t index) override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    sender_.durable = std::max(sender_.durable, index);
    sender_.end_durable |= sender_.end_told && index == sender_.arrived;
  }
  bool cancel() override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    cancelled_ = true;
    sender_.changed.notify_all();
    return true;
  }
  std::optional<StreamHealth> health() override {
    const std::lock_guard<std::mutex> lock(sender_.mutex);
    StreamHealth health;
    health.wants_durable = sender_.arrived - sender_.durable >= sender_.may_keep;
    health.lost = sender_.lost;
    return health;
  }

 private:
  Sender& sender_;
  uint64_t at_ = 0;
  bool cancelled_ = false;
};

constexpr const char* kLiveFlow =
    "harmonic live { producer x {4}; layer h {3}; layer o {4}; cycle { x -(tanh, dropout(0.2))-> h -> o; o <-(mse)- x; "
    "} }";

std::unique_ptr<BoundGraph> live_graph(Sender& sender, size_t ahead = 0) {
  auto g = graph_of(kLiveFlow);
  std::shared_ptr<Producer> p = std::make_shared<Live>(sender);
  if (ahead) p = std::make_shared<AsyncProducer>(p, ahead);
  bind_producer(*g, "x", p);
  return g;
}

bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 10000 && !holds(); ++i) std::this_thread::sleep_for(10ms);
  return holds();
}

}  // namespace

TEST_CASE("live: a run stopped anywhere is resumed to the same weights", "[live]") {
  Sender all;
  all.arrive(203);
  all.over = true;
  auto whole = live_graph(all);
  CycleRuntime undisturbed(*whole, 0, settings(8));
  const CycleReport report = undisturbed.run();
  CHECK(report.steps == 26);
  CHECK(report.stopped_by == "end of streams");
  for (const int64_t stop : {1, 4, 13, 26}) {
    Sender sender;
    sender.arrive(203);
    sender.over = true;
    FilesInMemory files;
    {
      auto first = live_graph(sender, stop % 2 ? 0 : 16);
      Checkpointer writer("runs", CheckpointInterval{0, 3, 0}, 3, files);
      RunSettings s = settings(8);
      s.steps = stop;
      CycleRuntime runtime(*first, 0, s);
      runtime.set_checkpoints(&writer);
      runtime.run();
      CHECK(sender.durable_until() == std::min<uint64_t>(203, static_cast<uint64_t>(stop) * 8));
    }
    auto second = live_graph(sender, stop % 2 ? 16 : 0);
    Checkpointer writer("runs", CheckpointInterval{0, 3, 0}, 3, files);
    std::vector<std::string> notes;
    CycleRuntime runtime(*second, 0, settings(8));
    runtime.set_checkpoints(&writer);
    runtime.resume(*CheckpointFolder("runs", files).newest(notes));
    const CycleReport resumed = runtime.run();
    CHECK(resumed.samples == 203);
    CHECK(learned_bytes(*second) == learned_bytes(*whole));
    CHECK(sender.durable_until() == 203);
  }
}

TEST_CASE("live: a run that waits for a silent stream can be stopped and keeps its results", "[live]") {
  Sender sender;
  sender.arrive(20);  // two and a half steps
  FilesInMemory files;
  auto g = live_graph(sender);
  Checkpointer writer("runs", CheckpointInterval{1e9, 0, 0}, 3, files);
  CycleRuntime runtime(*g, 0, settings(8));
  runtime.set_checkpoints(&writer);
  std::promise<void> trained;
  runtime.on_step(2, [&](const StepReport&) { trained.set_value(); });
  auto running = std::async(std::launch::async, [&] { return runtime.run(); });
  CHECK(trained.get_future().wait_for(100s) == std::future_status::ready);
  CHECK(running.wait_for(20ms) == std::future_status::timeout);
  runtime.stop();
  const bool ended = running.wait_for(100s) == std::future_status::ready;
  if (!ended) sender.over = true, sender.arrive(1000);  // ends the test
  REQUIRE(ended);
  const CycleReport report = running.get();
  CHECK(report.stopped_by == "interrupt");
  CHECK(report.samples == 16);
  CHECK(sender.durable_until() == 16);
}

TEST_CASE("live: a run stopped before its first sample ends without an error", "[live]") {
  Sender sender;
  auto g = live_graph(sender);
  CycleRuntime runtime(*g, 0, settings(8));
  auto running = std::async(std::launch::async, [&] { return runtime.run(); });
  runtime.stop();
  const bool ended = running.wait_for(100s) == std::future_status::ready;
  if (!ended) sender.over = true, sender.arrive(1000);  // ends the test
  REQUIRE(ended);
  const CycleReport report = running.get();
  CHECK(report.stopped_by == "interrupt");
  CHECK(report.samples == 0);
}

TEST_CASE("live: a time limit ends a run that waits for a silent stream", "[live]") {
  Sender sender;
  sender.arrive(8);
  auto g = live_graph(sender);
  RunSettings s = settings(8);
  s.seconds = 0.2;
  CycleRuntime runtime(*g, 0, s);
  auto running = std::async(std::launch::async, [&] { return runtime.run(); });
  const bool ended = running.wait_for(100s) == std::future_status::ready;
  if (!ended) sender.over = true, sender.arrive(1000);
  REQUIRE(ended);
  CHECK(running.get().stopped_by == "for");
}

TEST_CASE("live: a checkpoint is written when a sender is full and when one is due without samples", "[live]") {
  Sender sender;
  FilesInMemory files;
  auto g = live_graph(sender);
  Checkpointer writer("runs", CheckpointInterval{0.5, 0, 0}, 3, files);
  CycleRuntime runtime(*g, 0, settings(8));
  runtime.set_checkpoints(&writer);
  auto running = std::async(std::launch::async, [&] { return runtime.run(); });
  sender.arrive(16);
  CHECK(soon([&] { return sender.durable_until() == 16; }));  // although no further step follows
  {
    const std::lock_guard<std::mutex> lock(sender.mutex);
    sender.may_keep = 8;
  }
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t n = 24; n <= 96; n += 8) {
    sender.arrive(n);
    REQUIRE(soon([&] { return sender.durable_until() == n; }));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 4s);  // would be ten times 0.5 s otherwise
  runtime.stop();
  REQUIRE(running.wait_for(100s) == std::future_status::ready);
  running.get();
}

TEST_CASE("live: an end that arrives after the last checkpoint is durable before the run ends", "[live]") {
  Sender sender;
  FilesInMemory files;
  auto g = live_graph(sender);
  Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 3, files);
  CycleRuntime runtime(*g, 0, settings(8));
  runtime.set_checkpoints(&writer);
  auto running = std::async(std::launch::async, [&] { return runtime.run(); });
  sender.arrive(16);
  CHECK(soon([&] { return sender.durable_until() == 16; }));
  {
    const std::lock_guard<std::mutex> lock(sender.mutex);
    sender.over = true;
    sender.changed.notify_all();
  }
  REQUIRE(running.wait_for(100s) == std::future_status::ready);
  CHECK(running.get().steps == 2);
  CHECK(sender.end_durable);
  std::vector<std::string> notes;
  CHECK(CheckpointFolder("runs", files).newest(notes)->state.live.at("x").position == "sample 16 over");
}

TEST_CASE("live: a run resumed from an older checkpoint reports samples that no sender still has", "[live]") {
  Sender sender;
  sender.arrive(48);
  FilesInMemory files;
  {
    auto g = live_graph(sender);
    Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 3, files);
    RunSettings s = settings(8);
    s.steps = 3;
    CycleRuntime runtime(*g, 0, s);
    runtime.set_checkpoints(&writer);
    runtime.run();
  }
  REQUIRE(sender.durable_until() == 24);
  std::vector<std::string> notes;
  const std::string newest = CheckpointFolder("runs", files).newest(notes)->path;
  files.put(newest, "damaged");
  const auto older = CheckpointFolder("runs", files).newest(notes);
  REQUIRE(older->path != newest);
  const uint64_t position = older->state.live.at("x").index;
  REQUIRE(position < 24);
  sender.drops = sender.over = true;
  auto g = live_graph(sender);
  Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 3, files);
  CycleRuntime runtime(*g, 0, settings(8));
  runtime.set_checkpoints(&writer);
  runtime.resume(*older);
  const CycleReport report = runtime.run();
  const std::string told = std::to_string(24 - position) + " samples of 'x' are lost: no sender still has them";
  CHECK(std::count(report.notes.begin(), report.notes.end(), told) == 1);
  CHECK(report.lost == std::map<std::string, uint64_t>{{"x", 24 - position}});
}

TEST_CASE("live: a run that cannot be resumed says why", "[live]") {
  Sender sender;
  sender.arrive(16);
  sender.over = true;
  FilesInMemory files;
  {
    auto g = live_graph(sender);
    Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 3, files);
    CycleRuntime runtime(*g, 0, settings(8));
    runtime.set_checkpoints(&writer);
    runtime.run();
  }
  std::vector<std::string> notes;
  Checkpoint from = *CheckpointFolder("runs", files).newest(notes);
  CHECK(from.state.live.at("x").index == 16);
  CHECK(from.state.live.at("x").position == "sample 16 over");
  auto g = live_graph(sender);
  CycleRuntime without(*g, 0, settings(8));
  without.resume(from);
  CHECK(message_of([&] { without.run(); }) ==
        "resuming a run with live streams requires --checkpoint\n"
        "add --checkpoint DIR, so that senders with ack=durable can drop samples");
  from.state.live.clear();
  auto again = live_graph(sender);
  Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 3, files);
  CycleRuntime runtime(*again, 0, settings(8));
  runtime.set_checkpoints(&writer);
  runtime.resume(std::move(from));
  CHECK(message_of([&] { runtime.run(); }).find("the checkpoint has no position for live stream 'x'") == 0);
}
