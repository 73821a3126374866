// Traces the functions of one arrow on a value. Used to resolve widths and to lower graphs.
#pragma once

#include <functional>
#include <optional>

#include "engine/flow/graph.hpp"
#include "engine/model/layer_model.hpp"
#include "engine/program/tracer.hpp"

namespace harmonics::engine {

// A value in the flow: batch axis, then position axes, then features.
struct FlowValue {
  HTensor tensor;
  uint32_t positions = 0;
  int64_t classes = 0;  // for integers: number of classes or symbols; 0 if unknown
};

// A parameter of a model in another file.
struct ModelParameter {
  const LayerModel& model;
  const LayerParameter& parameter;
  bool last;  // belongs to the last linear map
};

// Supplies the parameters of the functions of an arrow, and receives their results.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  virtual HTensor parameter(const std::string& path, const TensorType& type, const hx_init& init,
                            const BoundCall& call) = 0;
  virtual HTensor of_model(const std::string& path, const ModelParameter& what, const BoundCall& call) = 0;
  virtual HTensor state(const std::string& path, const TensorType& type, const hx_init& init) = 0;
  virtual void update(const std::string& path, const HTensor& value) = 0;
  virtual HTensor random(const std::string& path, const Shape& shape) = 0;
  virtual bool training() const = 0;
  // Adds a scalar to the training loss.
  virtual void add_loss(const HTensor& /*loss*/) {}
  virtual void gave(const BoundCall& call, const std::vector<HTensor>& from, const HTensor& to) {
    (void)call, (void)from, (void)to;
  }
};

// Returns "source.target.conv", "source.target.conv.2", or the name given in the call.
std::string parameter_prefix(const GraphEdge& edge, size_t call);
// Returns the prefix of the parameters of the arrow into `node`, for tied=. Throws if that arrow has none.
std::string tied_prefix(const Graph& graph, int node, Span span);

// Converts to numbers for arithmetic: u8 samples are scaled to [0, 1], other integers and f64 are cast to f32.
HTensor as_numbers(const HTensor& raw);

// Returns random numbers in [0, 1) from the stream named by `path`, at the counter of the step.
HTensor random_numbers(Tracer& tracer, const std::string& path, const Shape& shape);

struct EdgeResult {
  FlowValue value;
  FlowValue before_activation;  // before the last call if it is an activation; otherwise the value
  std::string activation;       // identity of that activation; "" for none
};

// Traces an arrow. `width` is the number of features of the target, if known. Throws detail::NeedsWidth if a function
// needs an unknown width. Errors of functions get the location of their call.
EdgeResult run_edge(const Graph& graph, const GraphEdge& edge, const FlowValue& source, std::optional<int64_t> width,
                    const std::function<FlowValue(int node)>& value_of, ParameterSource& parameters);

}  // namespace harmonics::engine
