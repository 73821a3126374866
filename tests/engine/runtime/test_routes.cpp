// Routes of a run: stored in checkpoints, and reported if they differ after a resume.
#include <catch2/catch.hpp>

#include <map>

#include "engine/checkpoint/checkpointer.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/engine/runtime/resumed_runs.hpp"
#include "tests/files_in_memory.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using namespace harmonics::engine::testing::resuming;

TEST_CASE("resume: a checkpoint records the routes, and one line names those that are others now") {
  Setup setup;
  setup.run = settings(5);
  setup.run.epochs = 2;
  FilesInMemory files;
  Checkpointer writer("runs", CheckpointInterval{0, 1, 0}, 100, files);
  auto g = resumed_graph(setup, 0);
  CycleRuntime runtime(*g, 0, setup.run);
  runtime.set_checkpoints(&writer);
  runtime.run();
  const Checkpoint recorded = read_checkpoint(writer.last(), files);
  CHECK(recorded.state.routes.at("precision") == "fp32");
  CHECK(recorded.state.routes.at("device").find("CPU") == 0);
  CHECK(recorded.state.routes.count("kernels of linear") == 1);
  const auto notes_of = [&](const std::map<std::string, std::string>& routes) {
    Checkpoint c = recorded;
    for (const auto& [what, route] : routes) c.state.routes[what] = route;
    auto other = resumed_graph(setup, 0);
    CycleRuntime again(*other, 0, setup.run);
    again.resume(std::move(c));
    return again.run().notes;
  };
  CHECK(notes_of({}).empty());
  const std::string kernel = recorded.state.routes.at("kernels of linear");
  CHECK(notes_of({{"kernels of linear", kernel + ", one of a short batch"}}).empty());
  CHECK(notes_of({{"kernels of linear", "another kernel"}, {"device", "CPU, another"}}) ==
        std::vector<std::string>{"bits may differ from an uninterrupted run: the device is " +
                                 recorded.state.routes.at("device") + " (CPU, another before); kernels of linear " +
                                 kernel + " (another kernel before)"});
}
