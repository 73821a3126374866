// The checkpoints with the lowest validation losses are kept besides the newest.
#include <catch2/catch.hpp>

#include <limits>

#include "engine/checkpoint/checkpointer.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::vector<double> losses_of(const std::vector<BestCheckpoint>& list) {
  std::vector<double> losses;
  for (const BestCheckpoint& one : list) losses.push_back(one.loss);
  return losses;
}

TensorFile best_content(int64_t step) {
  TensorFile file;
  file.tensors["w"] = HTensor::from(Shape{1}, std::vector<float>{static_cast<float>(step)});
  return file;
}

Checkpointer::Content content_of_step(int64_t step) {
  return [step](TensorFile& file) {
    file = best_content(step);
    RunState state;
    state.step = step;
    return state;
  };
}

// Checks that the checkpoint of step 2 is the best one, and that only it and the last one, of step 5, are kept.
void check_second_is_best(Checkpointer& checkpoints) {
  REQUIRE(checkpoints.best().size() == 1);
  CHECK(checkpoints.best().front().step == 2);
  CHECK(checkpoints.best().front().loss < 0.1);
  std::vector<int64_t> steps;
  for (const CheckpointFolder::Entry& entry : checkpoints.folder().list()) steps.push_back(entry.step);
  CHECK(steps == std::vector<int64_t>{5, 2});
}

}  // namespace

TEST_CASE("best checkpoints: the smallest losses stay, in their order, and are found again") {
  const EmptyFolder folder;
  BestCheckpoints best(folder.path(), 2);
  CHECK(best.wants(5));
  best.add({"a", 1, 5});
  best.add({"b", 2, 3});
  CHECK_FALSE(best.wants(5));  // of equal losses the first is kept
  CHECK_FALSE(best.wants(std::numeric_limits<double>::quiet_NaN()));
  CHECK(best.wants(4));
  best.add({"c", 3, 4});
  CHECK(losses_of(best.list()) == std::vector<double>{3, 4});
  CHECK(best.files() == std::set<std::string>{"b", "c"});
  CHECK(BestCheckpoints(folder.path(), 2).list() == best.list());
  CHECK(losses_of(BestCheckpoints(folder.path(), 1).list()) == std::vector<double>{3});
  best.add({"c", 3, 1});  // replaces its loss
  CHECK(losses_of(best.list()) == std::vector<double>{1, 3});
}

TEST_CASE("best checkpoints: a list is read back, and any other text is none") {
  const std::vector<BestCheckpoint> list{{"checkpoint-000001-step-5.safetensors", 5, 0.1 + 0.2}, {"b", 7, 3}};
  CHECK(parse_best(best_text(list)) == list);
  CHECK(parse_best(best_text({})) == std::vector<BestCheckpoint>{});
  for (const char* text :
       {"", "[]", "{}", R"({"version": 2, "best": []})", R"({"version": 1, "best": {}})",
        R"({"version": 1, "best": [1]})", R"({"version": 1, "best": [{"file": "../a", "step": 1, "loss": 1}]})",
        R"({"version": 1, "best": [{"file": "", "step": 1, "loss": 1}]})",
        R"({"version": 1, "best": [{"file": "a", "step": -1, "loss": 1}]})",
        R"({"version": 1, "best": [{"file": "a", "step": 1, "loss": "1"}]})",
        R"({"version": 1, "best": [{"file": "a", "step": 1}]})"}) {
    INFO(text);
    CHECK_FALSE(parse_best(text));
  }
}

TEST_CASE("best checkpoints: they stay when newer ones are written") {
  const EmptyFolder folder;
  Checkpointer checkpoints(folder.path() + "/runs", CheckpointInterval{0, 1, 0}, 1);
  checkpoints.keep_best(2);
  const std::vector<double> losses{4, 2, 3, 5, 6};
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto step = static_cast<int64_t>(i) + 1;
    if (checkpoints.is_best(losses[i]))
      checkpoints.start(content_of_step(step), losses[i]);
    else
      checkpoints.write(content_of_step(step));
  }
  CHECK(losses_of(checkpoints.best()) == std::vector<double>{2, 3});
  std::vector<int64_t> steps;
  for (const CheckpointFolder::Entry& entry : checkpoints.folder().list()) steps.push_back(entry.step);
  CHECK(steps == std::vector<int64_t>{5, 3, 2});
  checkpoints.rate_last(1);
  CHECK(losses_of(checkpoints.best()) == std::vector<double>{1, 2});
  CHECK(checkpoints.best().front().step == 5);
  CHECK(checkpoints.folder().list().size() == 2);
}

TEST_CASE("best checkpoints: a run keeps those of its best validations") {
  const EmptyFolder folder;
  auto g = graph_of(
      "harmonic g { producer x {1}; producer y {1}; layer o {1}; cycle { x -(affine(bias=false))-> o; "
      "o <-(mse)- y; } }");
  bind_rows<float>(*g, "x", {1}, std::vector<float>(4, 1));
  bind_rows<float>(*g, "y", {1}, std::vector<float>(4, 10));
  const auto validated = [&](const std::string& name, float value) {
    g->validation_streams().bind(
        g->graph(), g->graph().find(name),
        Source(name, std::make_shared<testing::Rows<float>>(Shape{1}, std::vector<float>{value})));
  };
  validated("x", 1);
  validated("y", 2);  // the weight passes 2 on its way to 10
  declare(*g);
  set_weights(*g, "x.o.affine.weight", {0});
  RunSettings s = settings(4);
  s.epochs = 5;
  s.optimizer = "adam(lr=1)";
  Checkpointer checkpoints(folder.path() + "/runs", CheckpointInterval{0, 1000, 0}, 1);
  checkpoints.keep_best(1);
  CycleRuntime runtime(*g, 0, s);
  runtime.set_checkpoints(&checkpoints);
  runtime.run();
  check_second_is_best(checkpoints);
}

TEST_CASE("best checkpoints: the last validation of a run counts too") {
  const EmptyFolder folder;
  auto g = graph_of("harmonic g { producer x {1}; producer y {1}; layer o {1}; cycle { x -> o; o <-(mse)- y; } }");
  for (const char* name : {"x", "y"}) {
    bind_rows<float>(*g, name, {1}, std::vector<float>(4, 1));
    g->validation_streams().bind(g->graph(), g->graph().find(name),
                                 Source(name, std::make_shared<testing::Rows<float>>(Shape{1}, std::vector<float>{1})));
  }
  RunSettings s = settings(4);
  s.epochs = 1;
  Checkpointer checkpoints(folder.path() + "/runs", CheckpointInterval{0, 1000, 0}, 1);
  checkpoints.keep_best(1);
  CycleRuntime runtime(*g, 0, s);
  runtime.set_checkpoints(&checkpoints);
  const CycleReport report = runtime.run();
  REQUIRE(checkpoints.best().size() == 1);
  CHECK(checkpoints.best().front().loss == report.by_epoch.back().validation->loss);
}

TEST_CASE("best checkpoints: one that was written at the step of its validation is one of them") {
  const EmptyFolder folder;
  auto g = graph_of(
      "harmonic g { producer x {1}; producer y {1}; layer o {1}; cycle { x -(affine(bias=false))-> o; "
      "o <-(mse)- y; } }");
  // Streams that are read once are validated after so many steps, at which checkpoints are due, too.
  for (const auto& [name, value] : {std::pair{"x", 1.0f}, {"y", 10.0f}})
    bind_producer(*g, name, testing::Rows<float>(Shape{1}, std::vector<float>(5, value)).live());
  for (const auto& [name, value] : {std::pair{"x", 1.0f}, {"y", 2.0f}})  // the weight passes 2 on its way to 10
    g->validation_streams().bind(
        g->graph(), g->graph().find(name),
        Source(name, std::make_shared<testing::Rows<float>>(Shape{1}, std::vector<float>{value})));
  declare(*g);
  set_weights(*g, "x.o.affine.weight", {0});
  RunSettings s = settings(1);
  s.epochs = 1;
  s.optimizer = "adam(lr=1)";
  s.validate_every = 1;
  Checkpointer checkpoints(folder.path() + "/runs", CheckpointInterval{0, 1, 0}, 1);
  checkpoints.keep_best(1);
  CycleRuntime runtime(*g, 0, s);
  runtime.set_checkpoints(&checkpoints);
  runtime.run();
  check_second_is_best(checkpoints);
}
