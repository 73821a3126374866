#include "engine/cli/run/trained_adapters.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/flow/model_call.hpp"
#include "engine/transformer/trained_adapter.hpp"

namespace harmonics::engine::cli {

namespace {

// A call of a model with a trained adapter, and the prefix of its parameters' names.
struct AdapterCall {
  const BoundCall* call;
  std::string prefix;
};

std::vector<AdapterCall> adapter_calls(const Graph& graph) {
  std::vector<AdapterCall> all;
  for (const GraphEdge& edge : graph.edges)
    for (size_t i = 0; i < edge.calls.size(); ++i) {
      const BoundCall& call = edge.calls[i];
      if (!call.model || !call.arguments.has("lora")) continue;
      const std::string prefix = parameter_prefix(edge, i);
      const bool known = std::any_of(all.begin(), all.end(), [&](const AdapterCall& a) { return a.prefix == prefix; });
      if (!known) all.push_back({&call, prefix});
    }
  return all;
}

}  // namespace

void expect_trained_adapters(const BoundGraph& graph) {
  if (adapter_calls(graph.graph()).empty())
    throw Error(ErrorKind::Usage, "--save-adapter: the flow trains no adapter", {},
                {"write model(\"FILE\", lora=\"rank=8, alpha=16\")"});
}

std::vector<std::string> save_trained_adapters(BoundGraph& graph, const std::string& path) {
  expect_trained_adapters(graph);
  const std::vector<AdapterCall> calls = adapter_calls(graph.graph());
  const TensorFile weights = graph.weights();
  std::vector<std::string> written;
  for (const auto& [call, prefix] : calls) {
    const std::shared_ptr<const LayerModel> opened = call->model->open(graph.graph(), *call);
    const auto value = [&, &begin = prefix](const std::string& name) { return weights.tensors.at(begin + "." + name); };
    written.push_back(calls.size() == 1 ? path : fmt::format("{}/{}", path, prefix));
    write_adapter(*opened->model.adapter, value, written.back());
  }
  return written;
}

}  // namespace harmonics::engine::cli
