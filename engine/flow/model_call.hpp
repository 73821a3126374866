// model("FILE") as a layer function: the results of a language model in another file, after each token.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "engine/flow/run_edge.hpp"
#include "engine/model/layer_model.hpp"

namespace harmonics::engine {

inline constexpr const char* kModelFunction = "model";
// Returns the name and arguments of the function. It has no function table: its body is the program of the model.
ItemPtr model_function();

// The model of one call, opened on first use and shared by copies of a graph. Thread-safe.
class CalledModel {
 public:
  // Throws ErrorKind::Denied for a file that the flow may not name, and the errors of LayerModelOpener.
  std::shared_ptr<const LayerModel> open(const Graph& graph, const BoundCall& call);

 private:
  std::mutex mutex_;
  std::string path_;
  std::shared_ptr<const LayerModel> model_;
};

// Returns whether every arrow into the layer ends in a model, which determines the width of the layer.
bool ends_in_model(const Graph& graph, int layer);

// Traces the model on the tokens `x`. `value_of` returns the value of a node.
FlowValue run_model(const Graph& graph, const GraphEdge& edge, size_t call, const FlowValue& x,
                    const std::function<FlowValue(int node)>& value_of, ParameterSource& parameters);

}  // namespace harmonics::engine
