// model("FILE") as a layer function: the results of a language model of another file after each token.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "engine/flow/run_edge.hpp"
#include "engine/model/layer_model.hpp"

namespace harmonics::engine {

inline constexpr const char* kModelFunction = "model";
// The function's name and arguments. It has no table of functions: its body is the model's own program.
ItemPtr model_function();

// The model of one call, opened at the first use. Copies of a graph share it. Thread-safe.
class CalledModel {
 public:
  // Throws ErrorKind::Denied for a file that the flow may not name, and as LayerModelOpener.
  std::shared_ptr<const LayerModel> open(const Graph& graph, const BoundCall& call);

 private:
  std::mutex mutex_;
  std::string path_;
  std::shared_ptr<const LayerModel> model_;
};

// Whether every arrow into the layer ends in a model, so that the layer has its vocabulary or width.
bool ends_in_model(const Graph& graph, int layer);

// Traces the model on the tokens `x`; `value_of` gives the value of a node.
FlowValue run_model(const Graph& graph, const GraphEdge& edge, size_t call, const FlowValue& x,
                    const std::function<FlowValue(int node)>& value_of, ParameterSource& parameters);

}  // namespace harmonics::engine
