#include "engine/flow/run_edge.hpp"

#include <algorithm>

#include "engine/base/philox.hpp"
#include "engine/contract/plugin_functions.hpp"
#include "engine/flow/model_call.hpp"
#include "engine/plugin/scope.hpp"
#include "engine/program/step_input.hpp"

namespace harmonics::engine {

namespace {

class EdgeScope : public hx_scope {
 public:
  EdgeScope(const Graph& graph, const BoundCall& call, std::string prefix, const FlowValue& x,
            std::optional<int64_t> width, ParameterSource& source)
      : graph_(graph), call_(call), prefix_(std::move(prefix)), x_(x), width_(width), source_(source) {}

  HTensor parameter(const std::string& name, const TensorType& type, const hx_init& init) override {
    if (call_.tied >= 0 && name == "weight")
      return source_.parameter(tied_prefix(graph_, call_.tied, call_.span) + ".weight", type, init, call_);
    return source_.parameter(prefix_ + "." + name, type, init, call_);
  }
  HTensor state(const std::string& name, const TensorType& type, const hx_init& init) override {
    return source_.state(prefix_ + "." + name, type, init);
  }
  void update(const std::string& name, const HTensor& value) override { source_.update(prefix_ + "." + name, value); }
  HTensor random(const Shape& shape) override {
    return source_.random(prefix_ + ".random." + std::to_string(draws_++), shape);
  }
  bool training() const override { return source_.training(); }
  uint32_t leading() const override { return 1 + x_.positions; }
  void set_leading(uint32_t axes) override {
    if (axes < 1) throw Error(ErrorKind::Plugin, "a layer announced a result without a batch axis");
    positions_ = axes - 1;
  }
  uint32_t positions() const { return positions_; }  // of the result
  int64_t width() override {
    if (!width_) throw detail::NeedsWidth{};
    return *width_;
  }
  int64_t classes() override { return x_.classes; }

 private:
  const Graph& graph_;
  const BoundCall& call_;
  std::string prefix_;
  const FlowValue& x_;
  std::optional<int64_t> width_;
  ParameterSource& source_;
  uint32_t positions_ = x_.positions;
  int draws_ = 0;
};

bool owns_parameters(const BoundCall& c) {
  return c.item->kind == HX_LAYER && !(c.item->flags & (HX_MODE_ONLY | HX_IDENTITY_SKIP));
}

}  // namespace

HTensor random_numbers(Tracer& tracer, const std::string& path, const Shape& shape) {
  AttributeMap a;
  a.set("shape", shape.vector()).set("stream", static_cast<int64_t>(stream_of(path.data(), path.size())));
  return apply("random_uniform", a, {step_input(tracer, StepInput::counter)}).at(0);
}

std::string parameter_prefix(const GraphEdge& edge, size_t call) {
  const BoundCall& c = edge.calls[call];
  if (!c.parameter_name.empty()) return c.parameter_name;
  size_t same = 1;
  for (size_t i = 0; i < call; ++i)
    same += edge.calls[i].item->name == c.item->name && edge.calls[i].parameter_name.empty();
  std::string prefix = edge.path + "." + c.item->name;
  return same == 1 ? prefix : prefix + "." + std::to_string(same);
}

std::string tied_prefix(const Graph& graph, int node, Span span) {
  for (const GraphEdge& e : graph.edges) {
    if (e.target != node) continue;
    for (size_t i = 0; i < e.calls.size(); ++i)
      if (owns_parameters(e.calls[i])) return parameter_prefix(e, i);
  }
  throw Error(ErrorKind::Weights,
              "no arrow into '" + graph.nodes[static_cast<size_t>(node)].name + "' owns a weight to share", span,
              {"tied= names the layer whose incoming map or embedding is used again"});
}

HTensor as_numbers(const HTensor& raw) {
  const DType dtype = raw.dtype();
  if (dtype == DType::F32) return raw;
  const HTensor x = cast(raw, DType::F32);
  return dtype == DType::U8 ? mul(x, 1.0 / 255) : x;
}

EdgeResult run_edge(const Graph& graph, const GraphEdge& edge, const FlowValue& source, std::optional<int64_t> width,
                    const std::function<FlowValue(int)>& value_of, ParameterSource& parameters) {
  TraceScope scope({edge.path, Phase::forward, graph.origin(edge.span)});
  EdgeResult r{source, source, ""};
  for (size_t i = 0; i < edge.calls.size(); ++i) {
    const BoundCall& c = edge.calls[i];
    FlowValue& v = r.value;
    if (!(c.item->flags & HX_TAKES_CLASSES)) v.tensor = as_numbers(v.tensor);
    try {
      r.before_activation = v;
      if (c.item->kind == HX_ACTIVATION) {
        r.activation = c.item->identity();
        v.tensor = call_activation(c.item, c.arguments, v.tensor);
        parameters.gave(c, {r.before_activation.tensor}, v.tensor);
        continue;
      }
      r.activation.clear();
      if (c.model) {
        v = run_model(graph, edge, i, v, value_of, parameters);
        continue;
      }
      if (c.item->kind == HX_FUNCTIONAL) {
        std::vector<HTensor> inputs{v.tensor};
        for (const auto& [argument, node] : c.layers) inputs.push_back(as_numbers(value_of(node).tensor));
        v.tensor = call_functional(c.item, c.arguments, inputs);
        parameters.gave(c, inputs, v.tensor);
        v.positions = std::min(v.positions, v.tensor.rank() - 1);
        v.classes = 0;
        continue;
      }
      std::vector<std::pair<std::string, HTensor>> layers;
      for (const auto& [argument, node] : c.layers) layers.emplace_back(argument, as_numbers(value_of(node).tensor));
      EdgeScope edge_scope(graph, c, parameter_prefix(edge, i), v, width, parameters);
      v.tensor = call_layer(c.item, c.arguments, layers, edge_scope, v.tensor);
      std::vector<HTensor> from{r.before_activation.tensor};
      for (const auto& [argument, value] : layers) from.push_back(value);
      parameters.gave(c, from, v.tensor);
      v.positions = std::min(edge_scope.positions(), v.tensor.rank() - 1);
      v.classes = 0;
    } catch (const Error& e) {
      if (e.span().line) throw;
      throw Error(e.kind(), e.what(), c.span.line ? c.span : edge.span, e.notes());
    }
  }
  if (r.activation.empty()) r.before_activation = r.value;
  return r;
}

}  // namespace harmonics::engine
