// Whole cycles on a device with its own memory, whose kernels are bitwise equal to the CPU's: weights, measurements,
// states and deliveries are bitwise equal.
#include <catch2/catch.hpp>

#include <atomic>
#include <map>
#include <thread>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cycle/snapshot.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr const char* kPlainFlow =
    "harmonic plain { producer x {6}; producer y; layer h {9}; layer o; cycle { x -(dropout(0.3), tanh)-> h -> o; o "
    "<-(cross_entropy)- y; } }";
constexpr const char* kNormed =
    "harmonic normed { producer x {6}; producer y; layer h {8}; layer o; cycle { x -(affine, norm(kind=\"batch\"), "
    "relu)-> h -> o; o <-(cross_entropy)- y; } }";
constexpr const char* kHanded =
    "harmonic handed { producer x {6}; producer y; layer o; consumer c; cycle { x -(affine)-> o -> c; o "
    "<-(cross_entropy)- y; } }";

std::shared_ptr<FakeAccelerator> accelerator() {
  static const auto device = add_fake_accelerator(Registry::global(), "fake_of_cycles");
  return device;
}

// Devices that receive batches while the previous step runs. One copies them at once and computes as late as possible;
// one checks the loss itself.
const std::map<std::string, std::shared_ptr<FakeAccelerator>>& staging() {
  static const auto devices = [] {
    std::map<std::string, std::shared_ptr<FakeAccelerator>> made;
    for (const char* name : {"fake_staging", "fake_hurried", "fake_looking"})
      made[name] = add_fake_accelerator(Registry::global(), name, true, std::string_view(name) == "fake_looking");
    return made;
  }();
  return devices;
}

std::unique_ptr<BoundGraph> graph_for(const char* flow, bool validated = false) {
  auto g = graph_of(flow);
  const std::vector<float> x = numbers(6 * 40, 3);
  std::vector<uint8_t> y;
  for (size_t i = 0; i < 40; ++i) y.push_back(static_cast<uint8_t>((x[6 * i] > 0) + (x[6 * i + 1] > 0)));
  bind_rows(*g, "x", {6}, x);
  bind_rows(*g, "y", {}, y, 3);
  if (validated) {
    g->validation_streams().bind(g->graph(), g->graph().find("x"),
                                 Source("x", std::make_shared<Rows<float>>(Shape{6}, numbers(6 * 14, 9))));
    g->validation_streams().bind(g->graph(), g->graph().find("y"),
                                 Source("y", std::make_shared<Rows<uint8_t>>(Shape{}, std::vector<uint8_t>(14, 1), 3)));
  }
  return g;
}

RunSettings run_on(const std::string& device, RunSettings s) {
  s.device = device;
  return s;
}

RunSettings six_epochs(int64_t accumulate = 1) {
  RunSettings s = settings(7);
  s.epochs = 6;
  s.accumulate = accumulate;
  s.optimizer = "adamw(lr=0.01)";
  s.clip = 0.5;
  return s;
}

std::map<std::string, std::string> all_of(BoundGraph& g) {
  std::map<std::string, std::string> bytes;
  TensorFile all;
  g.snapshot(all);
  for (const auto& [name, tensor] : all.tensors)
    bytes[name] = std::string(static_cast<const char*>(tensor.bytes()), type_of(tensor).bytes());
  return bytes;
}

}  // namespace

TEST_CASE("device: a cycle with device memory is bitwise equal to the CPU") {
  accelerator();
  const auto [flow, accumulate, validated] = GENERATE(table<const char*, int64_t, bool>(
      {{kPlainFlow, 1, false}, {kPlainFlow, 3, true}, {kNormed, 1, true}, {kNormed, 2, false}}));
  const auto end = [&, flow = flow, accumulate = accumulate, validated = validated](const std::string& device) {
    auto g = graph_for(flow, validated);
    const CycleReport r = CycleRuntime(*g, 0, run_on(device, six_epochs(accumulate))).run();
    double seen = r.loss;
    for (const EpochReport& e : r.by_epoch) seen += e.validation ? e.validation->loss : 0;
    return std::tuple(all_of(*g), r.steps, seen, r.accuracy, r.notes);
  };
  CHECK((end("fake_of_cycles") == end("cpu")));
}

TEST_CASE("device: prefetched batches reach the steps unchanged") {
  struct Way {
    const char* flow;
    int64_t accumulate;
    int threads;
  };
  for (const Way& way : {Way{kPlainFlow, 1, 1}, Way{kPlainFlow, 3, 2}, Way{kNormed, 1, 2}}) {
    const auto end = [&](const std::string& device) {
      auto g = graph_for(way.flow, true);
      RunSettings s = run_on(device, six_epochs(way.accumulate));
      s.threads = way.threads;
      const CycleReport r = CycleRuntime(*g, 0, s).run();
      return std::tuple(all_of(*g), r.steps, r.loss, r.accuracy, r.notes);
    };
    const auto expected = end("cpu");
    for (const auto& [name, device] : staging()) {
      INFO(name << ", " << way.accumulate << " batches per step, " << way.threads << " threads");
      device->hurries = name == "fake_hurried";
      device->waits = 0;
      CHECK((end(name) == expected));
      CHECK(device->waits == 6 * 6);  // one per batch
    }
  }
}

TEST_CASE("device: a failed copy ends the run with its reason") {
  const auto& device = staging().at("fake_staging");
  auto g = graph_for(kPlainFlow);
  device->upload_fails = 9;
  CHECK(message_of([&] { CycleRuntime(*g, 0, run_on("fake_staging", six_epochs())).run(); }) ==
        "device 'fake_staging' could not copy to its memory: a cable is out");
  device->upload_fails = 0;
}

TEST_CASE("device: a consumer receives its results") {
  accelerator();
  const auto handed = [](const std::string& device) {
    auto g = graph_for(kHanded);
    const auto kept = keep(*g, "c");
    CycleRuntime(*g, 0, run_on(device, six_epochs())).run();
    return kept->values;
  };
  const std::vector<float> cpu = handed("cpu");
  CHECK(cpu.size() == 6 * 40 * 3);
  CHECK((handed("fake_of_cycles") == cpu));
}

TEST_CASE("device: a checkpoint moves a run to another device") {
  accelerator();
  auto undisturbed = graph_for(kNormed);
  CycleRuntime(*undisturbed, 0, six_epochs()).run();
  const auto expected = all_of(*undisturbed);
  for (const auto& [first, second] : {std::pair("cpu", "fake_of_cycles"), std::pair("fake_of_cycles", "cpu"),
                                      std::pair("fake_of_cycles", "fake_of_cycles")}) {
    FilesInMemory files;
    RunSettings part = six_epochs();
    part.epochs.reset();
    part.steps = 17;
    auto g = graph_for(kNormed);
    Checkpointer writer("runs", CheckpointInterval{0, 5, 0}, 3, files);
    CycleRuntime before(*g, 0, run_on(first, part));
    before.set_checkpoints(&writer);
    before.run();
    auto other = graph_for(kNormed);
    CycleRuntime after(*other, 0, run_on(second, six_epochs()));
    std::vector<std::string> notes;
    after.resume(*CheckpointFolder("runs", files).newest(notes));
    CHECK(after.run().steps == 36);
    INFO(first << " to " << second);
    CHECK((all_of(*other) == expected));
  }
}

TEST_CASE("device: a snapshot holds the weights of one step") {
  accelerator();
  std::map<int64_t, std::string> expected;
  auto cpu = graph_for(kPlainFlow);
  CycleRuntime on_cpu(*cpu, 0, six_epochs());
  on_cpu.on_step(1, [&](const StepReport& r) { expected[r.step] = learned_bytes(*cpu); });
  on_cpu.run();
  auto g = graph_for(kPlainFlow);
  CycleRuntime runtime(*g, 0, run_on("fake_of_cycles", six_epochs()));
  std::thread reader;
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0}, read{0};
  runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& kept) {
    reader = std::thread([&, kept] {
      while (!over) {
        const auto s = kept->fresh(Snapshots::Clock::now() + std::chrono::seconds(1));
        std::string bytes;
        for (const auto& [name, t] : s->weights().all())
          bytes.append(static_cast<const char*>(t.data()), t.type.bytes());
        if (s->version().step != 0 && expected.at(s->version().step) != bytes) ++wrong;
        ++read;
      }
    });
  });
  runtime.on_step(1, [](const StepReport&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  runtime.run();
  over = true;
  reader.join();
  CHECK(wrong == 0);
  CHECK(read > 3);
}

TEST_CASE("device: steps computed on the host are reported once") {
  const auto device = accelerator();
  device->declined = {"dot", "linear"};
  auto g = graph_for(kPlainFlow);
  const CycleReport r = CycleRuntime(*g, 0, run_on("fake_of_cycles", six_epochs())).run();
  device->declined.clear();
  REQUIRE(r.notes.size() == 1);
  CHECK(r.notes[0].find("device 'fake_of_cycles' has no kernel for ") == 0);
  CHECK(r.notes[0].find("dot") != std::string::npos);
  auto cpu = graph_for(kPlainFlow);
  CHECK(r.loss == Approx(CycleRuntime(*cpu, 0, six_epochs()).run().loss).epsilon(1e-4));
}

TEST_CASE("device: a non-finite loss stops the cycle before any weight changes") {
  accelerator();
  const auto message = [](const std::string& device) {
    auto g = graph_of("harmonic g { producer x {1}; producer y {1}; layer o {1}; cycle { x -> o; o <-(mse)- y; } }");
    std::vector<float> x = numbers(20, 5);
    x[13] = INFINITY;
    bind_rows(*g, "x", {1}, x);
    bind_rows(*g, "y", {1}, numbers(20, 6));
    RunSettings s = run_on(device, settings(4));
    s.epochs = 1;
    s.shuffle = false;
    return message_of([&] { CycleRuntime(*g, 0, s).run(); }) + learned_bytes(*g);
  };
  const std::string on_cpu = message("cpu");
  CHECK((message("fake_of_cycles") == on_cpu));
  const FakeAccelerator& looking = *staging().at("fake_looking");
  const size_t before = looking.awaited;
  CHECK((message("fake_looking") == on_cpu));
  CHECK(looking.awaited > before + 1);  // the earlier steps' events, and that of the step without effect
}
