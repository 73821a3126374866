// Compares random flows, trained from initial values, with equivalent PyTorch models.
#include <catch2/catch.hpp>

#include "engine/measure/evaluate.hpp"
#include "random_flow.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::parity;
using harmonics::engine::testing::graph_of;

namespace {

void check_part(const RandomFlow& flow, const std::string& part, const HTensor& found, const HTensor& expected) {
  INFO(part);
  CHECK(relative_error(found, expected) <= flow.allowed.at(part));
}

void check_training(BoundGraph& graph, const RandomFlow& flow, const TensorFile& file) {
  std::vector<double> losses;
  CycleRuntime runtime(graph, 0, flow.settings());
  runtime.on_step(1, [&](const StepReport& r) { losses.push_back(r.metrics.at("loss")); });
  runtime.run();
  check_part(flow, "losses", HTensor::from<double>({static_cast<int64_t>(losses.size())}, losses),
             file.tensors.at(flow.name + "/loss"));
  for (const auto& [path, expected] : below(file, flow.name + "/weights")) {
    INFO(path);
    REQUIRE(graph.store().find(path));
    CHECK(graph.store().find(path)->type.shape == expected.shape());
    check_part(flow, "weights " + path, graph.store().tensor(path), expected);
  }
}

void check_test(BoundGraph& graph, const RandomFlow& flow, const TensorFile& file) {
  bind_part(graph, graph.test_streams(), file, flow, "test", true);
  const Evaluation e = evaluate(graph, 0, graph.test_streams(), flow.settings());
  check_part(flow, "test loss", HTensor::from<double>({}, {e.loss}), file.tensors.at(flow.name + "/test_loss"));
  const HTensor& accuracy = file.tensors.at(flow.name + "/test_accuracy");
  if (std::isnan(accuracy.data<double>()[0]))
    CHECK(e.accuracy == -1);
  else
    check_part(flow, "test accuracy", HTensor::from<double>({}, {e.accuracy}), accuracy);
}

void check_inference(const BoundGraph& trained, const RandomFlow& flow, const TensorFile& file) {
  const auto graph = inference_of(flow);
  bind_part(*graph, graph->streams(), file, flow, "infer", false);
  graph->load_weights(trained.weights(), "the trained weights");
  std::map<std::string, std::shared_ptr<testing::Kept>> kept;
  for (const auto& [layer, consumer] : flow.consumers) kept[layer] = testing::keep(*graph, consumer);
  RunSettings settings = flow.settings();
  settings.batch = 3;
  CycleRuntime(*graph, 0, settings).run();
  for (const auto& [layer, results] : kept)
    check_part(flow, "infer " + layer,
               HTensor::from<float>({static_cast<int64_t>(results->values.size())}, results->values),
               file.tensors.at(flow.name + "/result/" + layer));
}

}  // namespace

TEST_CASE("random flows: weights, losses, test and inference equal PyTorch's") {
  const TensorFile file = golden("random_flows.safetensors");
  const std::vector<RandomFlow> flows = random_flows(file);
  REQUIRE(flows.size() == 40);
  for (const RandomFlow& flow : flows) {
    DYNAMIC_SECTION(flow.name) {
      INFO(flow.text);
      const auto graph = graph_of(flow.text);
      bind_part(*graph, graph->streams(), file, flow, "train", true);
      check_training(*graph, flow, file);
      check_test(*graph, flow, file);
      check_inference(*graph, flow, file);
    }
  }
}
