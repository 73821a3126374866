// Runs that are resumed where a condition or a cycle has ended.
#include <catch2/catch.hpp>

#include "tests/engine/runtime/resumed_runs.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using namespace harmonics::engine::testing::resuming;

TEST_CASE("resume: a run that patience has ended trains on only with more patience") {
  Setup setup;
  setup.validated = true;
  setup.run = settings(4);
  setup.run.epochs = 40;
  setup.run.optimizer = "sgd(lr=3)";
  setup.run.patience = 2;
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 1000, files);
  auto g = resumed_graph(setup, 0);
  CycleRuntime runtime(*g, 0, setup.run);
  runtime.set_checkpoints(&writer);
  const End undisturbed = end_of(*g, runtime.run());
  writer.wait();
  REQUIRE(undisturbed.report.stopped_by.starts_with("by patience"));
  REQUIRE(undisturbed.report.epochs < 40);
  const auto all = writer.folder().list();
  for (const size_t at : {size_t{0}, all.size() / 2, all.size() - 1}) {
    const Checkpoint from = read_checkpoint(all[at].path, files);
    CAPTURE(from.path);
    expect_same(resumed(setup, from, 2, 3), undisturbed);
  }
  Setup patient = setup;
  patient.run.patience = 5;
  const End longer = resumed(patient, read_checkpoint(all[0].path, files), 1, 0);
  CHECK(longer.report.steps > undisturbed.report.steps);
}

TEST_CASE("cycles: each begins with the moments of its own optimizer, also of another type") {
  const char* flow = R"hmx(harmonic g { producer x {6}; producer y {3}; layer h {72}; layer k {64}; layer o;
    cycle (epochs 1, optimizer="adamw(lr=0.01, moments=q8)") { x -(tanh)-> h -(tanh)-> k -> o; o <-(cross_entropy)- y; }
    cycle (epochs 1, optimizer="adamw(lr=0.01)") { x -(tanh)-> h -(tanh)-> k -> o; o <-(cross_entropy)- y; }
    cycle (epochs 1, optimizer="adamw(lr=0.01, moments=bf16)") {
      x -(tanh)-> h -(tanh)-> k -> o; o <-(cross_entropy)- y; } })hmx";
  Setup setup;
  setup.flow = flow;
  setup.run = settings(4);
  setup.run.optimizer.reset();
  auto g = resumed_graph(setup, 0);
  const auto type_of_moment = [&] { return g->store().find("optimizer.m.h.k.affine.weight")->type.dtype; };
  CycleRuntime(*g, 0, setup.run).run();
  CHECK(type_of_moment() == DType::U8);
  TensorFile weights;
  g->snapshot(weights);
  std::erase_if(weights.tensors, [](const auto& entry) { return entry.first.starts_with("moment/"); });
  CycleRuntime(*g, 1, setup.run).run();
  CHECK(type_of_moment() == DType::F32);

  auto alone = resumed_graph(setup, 0);  // only the second cycle, from the weights of the first
  CycleRuntime(*alone, 1, setup.run).declare_parameters();
  alone->restore(weights);
  CycleRuntime(*alone, 1, setup.run).run();
  for (const auto& [name, tensor] : weights.tensors) {
    INFO(name);
    const size_t bytes = type_of(tensor).bytes();
    CHECK(std::memcmp(g->store().tensor(name).bytes(), alone->store().tensor(name).bytes(), bytes) == 0);
  }
  CycleRuntime(*g, 2, setup.run).run();
  CHECK(type_of_moment() == DType::BF16);
}
