// Compares flows with one function each, trained for ten steps, with the same net in PyTorch.
#include <catch2/catch.hpp>

#include "golden.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::parity;
using harmonics::engine::testing::graph_of;

namespace {

constexpr Tolerance kFloatFlow{2e-5, 2e-5};

template <typename T>
void bind(BoundGraph& graph, const std::string& name, const HTensor& t) {
  testing::bind_rows<T>(graph, name, t.shape().from(1), {t.data<T>(), t.data<T>() + t.size()});
}
void bind_any(BoundGraph& graph, const std::string& name, const HTensor& t) {
  switch (t.dtype()) {
    case DType::F32:
      return bind<float>(graph, name, t);
    case DType::I32:
      return bind<int32_t>(graph, name, t);
    case DType::U8:
      return bind<uint8_t>(graph, name, t);
    default:
      FAIL("no producer for " << type_of(t).str());
  }
}

}  // namespace

TEST_CASE("ten steps of flows with each function equal PyTorch's") {
  const TensorFile file = golden("flows.safetensors");
  REQUIRE(file.metadata.size() == 39);
  for (const auto& [name, text] : file.metadata) {
    INFO(name << ": " << text);
    const auto graph = graph_of(text);
    int64_t samples = 0;
    for (const auto& [stream, t] : below(file, name + "/data")) {
      bind_any(*graph, stream, t);
      samples = t.shape()[0];
    }
    LoweringOptions all;
    all.optimizer = parse_optimizer("sgd");
    all.batch = samples;
    graph->lower(all);
    for (const auto& [path, value] : below(file, name + "/initial")) {
      INFO("initial " << path);
      REQUIRE(graph->store().find(path));
      CHECK(graph->store().find(path)->type == type_of(value));
      testing::set_weights(*graph, path, {value.data<float>(), value.data<float>() + value.size()});
    }
    RunSettings settings = testing::settings(samples);
    settings.steps = 1;
    settings.optimizer = "sgd(lr=0.0625)";
    const HTensor& losses = file.tensors.at(name + "/loss");
    for (int64_t step = 0; step < losses.size(); ++step) {
      INFO("step " << step + 1);
      const double loss = CycleRuntime(*graph, 0, settings).run().loss;
      CHECK(difference(HTensor::from<double>({}, {loss}), HTensor::from<double>({}, {losses.data<double>()[step]}),
                       kFloatFlow) == "");
    }
    const auto final = below(file, name + "/final");
    CHECK(final.size() == graph->store().all().size());
    for (const auto& [path, value] : final) {
      INFO("final " << path);
      CHECK(difference(graph->store().tensor(path), value, kFloatFlow) == "");
    }
  }
}
