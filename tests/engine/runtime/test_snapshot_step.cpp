// One plan runs on every snapshot of a cycle, and snapshots copy only trained weights.
#include <catch2/catch.hpp>

#include <malloc.h>

#include "engine/cycle/snapshot_step.hpp"
#include "tests/engine/execution/allocation_count.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

constexpr int64_t kFrozenOutputs = 2000, kFrozenInputs = 1000;

// Eight megabytes of frozen weights, and a few trained ones.
std::unique_ptr<BoundGraph> mostly_frozen() {
  auto g = graph_of(
      "harmonic g { producer x {1000}; producer y {3}; layer h {2000}; layer o; cycle { x -(affine(freeze=true), "
      "relu)-> h -(affine, norm(\"batch\"))-> o; o <-(cross_entropy)- y; } }");
  bind_rows(*g, "x", {kFrozenInputs}, numbers(kFrozenInputs * 4));
  bind_rows<int64_t>(*g, "y", {}, {0, 1, 2, 0});
  LoweringOptions training;
  training.optimizer = parse_optimizer("adamw");
  training.batch = 4;
  g->lower(training);
  return g;
}

Lowered forward_of(BoundGraph& g, int64_t batch, const DeviceSettings& device = {}) {
  LoweringOptions o;
  o.mode = Mode::infer;
  o.batch = batch;
  o.device = device;
  o.wanted = g.results(0);
  return g.lower(o);
}

std::vector<float> results_on(CompiledStep& step, const std::vector<float>& x) {
  const void* streams[1] = {x.data()};
  step.set(streams, 0, 1, 0);
  step.run();
  const HTensor& y = step.executable().output("out:o");
  return {y.data<float>(), y.data<float>() + y.size()};
}

// Emulates the trainer: a step that changes the weights, and a snapshot of it.
std::shared_ptr<const Snapshot> snapshot_after(BoundGraph& g, Snapshots& snapshots, int64_t step) {
  snapshots.begin();
  set_weights(g, "h.o.affine.weight", numbers(3 * kFrozenOutputs, static_cast<uint32_t>(step)));
  snapshots.end(step);
  snapshots.settle();
  return snapshots.newest();
}

size_t bytes_in_use() {
  const struct mallinfo2 now = ::mallinfo2();
  return now.uordblks + now.hblkhd;
}

void check_every_snapshot(const DeviceSettings& device) {
  const auto g = mostly_frozen();
  const auto executor = make_sequential_executor();
  // Compiled first, so that the snapshots have the layouts that it requests.
  CompiledStep expected(forward_of(*g, 4, device), g->store(), *executor, g->compile_options(device));
  const auto snapshots = std::make_shared<Snapshots>(g->store(), WeightsVersion{0, 0});
  SnapshotStep one(forward_of(*g, 1, device), *snapshots, *executor, g->compile_options(device));
  SnapshotStep four(forward_of(*g, 4, device), *snapshots, *executor, g->compile_options(device));
  const std::vector<float> x = numbers(kFrozenInputs * 4, 5);
  std::vector<std::shared_ptr<const Snapshot>> held;
  std::vector<std::vector<float>> of_step;
  for (int64_t step = 1; step <= 3; ++step) {
    held.push_back(snapshot_after(*g, *snapshots, step));
    CHECK(held.back()->version().step == step);
    of_step.push_back(results_on(expected, x));
  }
  CHECK(of_step[0] != of_step[1]);
  std::set<size_t> places;
  for (const size_t i : {0u, 1u, 2u, 1u, 0u, 2u}) {
    INFO(device.device << ", step " << held[i]->version().step);
    places.insert(held[i]->place());
    CHECK(results_on(four.on(*held[i]), x) == of_step[i]);
    const std::vector<float> first = results_on(one.on(*held[i]), x);
    for (size_t k = 0; k < first.size(); ++k) CHECK(first[k] == Approx(of_step[i][k]).margin(1e-4));
  }
  CHECK(places.size() == 3);
}

}  // namespace

TEST_CASE("snapshot step: one plan gives every held snapshot its own results") { check_every_snapshot({}); }

TEST_CASE("snapshot step: a device with its own memory gives every held snapshot its own results") {
  static const auto device = add_fake_accelerator(Registry::global(), "fake_of_snapshots");
  DeviceSettings settings;
  settings.device = "fake_of_snapshots";
  check_every_snapshot(settings);
  // The frozen weights are uploaded for the trainer's program and once for all snapshots.
  CHECK(device->uploaded < 3 * kFrozenOutputs * kFrozenInputs * sizeof(float));
}

TEST_CASE("snapshot step: snapshots and their readers share frozen weights") {
  const auto g = mostly_frozen();
  const auto executor = make_sequential_executor();
  const size_t frozen = kFrozenOutputs * kFrozenInputs * sizeof(float), before = bytes_in_use();
  const auto snapshots = std::make_shared<Snapshots>(g->store(), WeightsVersion{0, 0});
  std::vector<std::unique_ptr<SnapshotStep>> readers;
  for (int i = 0; i < 4; ++i)
    for (const int64_t batch : {1, 8, 32})
      readers.push_back(
          std::make_unique<SnapshotStep>(forward_of(*g, batch), *snapshots, *executor, g->compile_options({})));
  std::vector<std::shared_ptr<const Snapshot>> held;
  for (int64_t step = 1; step <= 3; ++step) {
    held.push_back(snapshot_after(*g, *snapshots, step));
    for (const auto& reader : readers) reader->on(*held.back()).run_empty();
  }
  if (kCountsAllocations) CHECK(bytes_in_use() - before < frozen);
  const StoredTensor& of_trainer = *g->store().find("x.h.affine.weight");
  for (const auto& snapshot : held) {
    const auto& all = snapshot->weights().all();
    CHECK(all.at("x.h.affine.weight").storage == of_trainer.storage);
    CHECK(all.at("h.o.affine.weight").storage != g->store().find("h.o.affine.weight")->storage);
    CHECK(all.count("optimizer.m.h.o.affine.weight") == 0);
  }
  for (const auto& reader : readers) {
    const MemoryReport memory = reader->any().executable().memory();
    CHECK(memory.arena_bytes < frozen / 4);
    CHECK(memory.state_bytes > frozen);
  }
}
