// samples/vision: their numbers of parameters, and narrow networks of the same flows against PyTorch.
#include <catch2/catch.hpp>

#include "golden.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::parity;
using harmonics::engine::testing::bind_rows;
using harmonics::engine::testing::graph_of;

namespace {

// The scores of one sample.
HTensor scores_of(BoundGraph& graph, const HTensor& images) {
  bind_rows<float>(graph, "images", images.shape().from(1),
                   {images.data<float>(), images.data<float>() + images.size()});
  const auto kept = testing::keep(graph, "");
  RunSettings settings = testing::settings(images.shape()[0]);
  settings.epochs = 1;
  CycleRuntime(graph, 0, settings).run();
  const auto classes = static_cast<int64_t>(kept->values.size()) / images.shape()[0];
  return HTensor::from(Shape{images.shape()[0], classes}, kept->values);
}

}  // namespace

TEST_CASE("vision: narrow networks with the weights of PyTorch's modules have their scores") {
  const TensorFile file = golden("vision.safetensors");
  REQUIRE(file.metadata.size() == 2);
  for (const auto& [name, text] : file.metadata) {
    INFO(name);
    TensorFile weights;
    weights.tensors = below(file, name + "/weights");
    weights.mapped = file.mapped;
    REQUIRE(weights.tensors.count(name == "resnet34" ? "bn1.running_var" : "features.0.1.running_var"));
    const auto graph = graph_of(text);
    graph->load_weights(weights, "vision.safetensors");
    CHECK(difference(scores_of(*graph, file.tensors.at(name + "/images")), file.tensors.at(name + "/scores"),
                     {1e-4, 1e-4}) == "");
  }
}

TEST_CASE("vision: the samples have as many parameters as torchvision's networks") {
  for (const auto& [name, expected] :
       std::vector<std::pair<std::string, int64_t>>{{"resnet34", 21'797'672}, {"mobilenet_v2", 3'504'872}}) {
    INFO(name);
    BoundGraph graph(make_graph(parse_flow_file(std::string(HARMONICS_SOURCE_DIR) + "/samples/vision/" + name + ".hmx"),
                                Registry::global()));
    bind_rows<float>(graph, "images", {3, 224, 224}, std::vector<float>(3 * 224 * 224));
    bind_rows<int32_t>(graph, "labels", {}, {3}, 1000);
    LoweringOptions options;
    options.mode = Mode::evaluate;
    options.batch = 1;
    graph.lower(options);
    int64_t parameters = 0;
    for (const auto& [path, stored] : graph.store().all())
      if (stored.role == Role::weight && path.rfind("normalize.", 0) != 0) parameters += stored.type.shape.count();
    CHECK(parameters == expected);
  }
}
