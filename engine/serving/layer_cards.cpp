#include "engine/serving/layer_cards.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/execution/selection.hpp"
#include "engine/flow/run_edge.hpp"
#include "engine/serving/json_text.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

const std::string kGradient = "optimizer.gradient.";

// Calls `body` with each element as double, for any element type.
template <typename Body>
void each_number(const TensorType& type, const void* data, int64_t n, Body&& body) {
  if (type.dtype == DType::F32) {
    const auto* p = static_cast<const float*>(data);
    for (int64_t i = 0; i < n; ++i) body(static_cast<double>(p[i]));
    return;
  }
  const HTensor numbers = cast(view_of({type.dtype, {n}}, const_cast<void*>(data)), DType::F32);
  each_number(type_of(numbers), numbers.bytes(), n, body);
}

double norm_of(const StoredTensor& t) {
  double sum = 0;
  each_number(t.type, t.data(), t.type.shape.count(), [&](double v) { sum += v * v; });
  return std::sqrt(sum);
}

json::array shape_json(const Shape& shape) {
  json::array a;
  for (int64_t d : shape) a.push_back(d);
  return a;
}

json::value activation(const HTensor& value, int64_t n) {
  const TensorType type = type_of(value);
  double least = 0, most = 0, sum = 0, squares = 0;
  int64_t zeros = 0, finite = 0;
  each_number(type, value.bytes(), n, [&](double v) {
    if (!std::isfinite(v)) return;
    least = finite == 0 ? v : std::min(least, v);
    most = finite == 0 ? v : std::max(most, v);
    ++finite;
    sum += v;
    squares += v * v;
    zeros += v == 0;
  });
  std::array<int64_t, LayerCards::kParts> counts{};
  const double width = most > least ? (most - least) / LayerCards::kParts : 1;
  each_number(type, value.bytes(), n, [&](double v) {
    if (std::isfinite(v)) ++counts[static_cast<size_t>(std::clamp((v - least) / width, 0.0, LayerCards::kParts - 1.0))];
  });
  const double of = static_cast<double>(std::max<int64_t>(finite, 1)), mean = sum / of;
  return {{"min", least},
          {"max", most},
          {"mean", mean},
          {"deviation", std::sqrt(std::max(0.0, squares / of - mean * mean))},
          {"zeros", static_cast<double>(zeros) / of},
          {"not_finite", n - finite},
          {"from", least},
          {"to", most},
          {"counts", json::array(counts.begin(), counts.end())}};
}

}  // namespace

LayerCards::LayerCards(BoundGraph& graph, int cycle, const RunSettings& run, const ParameterStore& weights)
    : graph_(graph.graph().name), executor_(make_sequential_executor()) {
  for (const auto& [name, t] : weights.all()) {
    if (t.fixed) {
      store_.share(name, t);
      continue;
    }
    StoredTensor& mine = store_.declare(name, t.type, t.role, hx_init{}, 0);
    mine.layout = t.layout;
    mine.asked = true;
  }
  const ResolvedSettings settings = graph.settings(cycle, run);
  batch_ = std::min<uint64_t>(BatchSample::kMost, static_cast<uint64_t>(settings.batch));
  seed_ = settings.seed;
  LoweringOptions o;
  o.cycle = cycle;
  o.seed = seed_;
  o.device = run;
  o.batch = static_cast<int64_t>(batch_);
  o.branches = graph.graph().branches(cycle);
  o.mode = Mode::infer;
  o.observe = true;
  o.wanted = graph.results(cycle);
  const auto lowered = [&] { return lower(graph.graph(), graph.types(), graph.widths(), store_, o); };
  values_ = std::make_unique<CompiledStep>(lowered(), store_, *executor_, graph.compile_options(run));
  if (graph.graph().trains(cycle)) {
    o.mode = Mode::train;
    o.observe = false;
    o.wanted.clear();
    o.accumulate = 1;  // leaves plain gradients in states, without an update
    o.by_count = false;
    static_cast<UpdateSettings&>(o) = settings;
    Selection selection(graph.registry(), o.device, true);
    o.chooser = &selection;
    Lowered training = lowered();
    if (!training.trained.empty())
      gradients_ =
          std::make_unique<CompiledStep>(std::move(training), store_, *executor_, graph.compile_options(run, true));
  }
  const std::vector<int> producers = graph.graph().producers_used(cycle, graph.graph().trains(cycle));
  for (size_t i = 0; i < producers.size(); ++i) {
    const StreamType& type = graph.types().at(producers[i]);
    const TensorType sample{type.dtype, type.sample};
    streams_.push_back({producers[i], graph.graph().nodes[static_cast<size_t>(producers[i])].name, sample, i,
                        std::make_shared<Storage>(sample.bytes() * batch_)});
  }
  add_layers(graph, cycle);
}

void LayerCards::add_layers(const BoundGraph& harmonic, int cycle) {
  const Graph& graph = harmonic.graph();
  for (int n : graph.order()) {
    const GraphNode& node = graph.nodes[static_cast<size_t>(n)];
    if (node.kind != DeclarationKind::Layer) continue;
    Layer layer{node.name, {}, {}, nullptr};
    for (const GraphEdge& e : graph.edges) {
      if (e.target != n || (e.cycle >= 0 && e.cycle != cycle)) continue;
      for (size_t i = 0; i < e.calls.size(); ++i)
        for (const auto& [name, t] : store_.all())
          if ((t.role == Role::weight || t.role == Role::frozen) && name.starts_with(parameter_prefix(e, i) + ".") &&
              std::find(layer.tensors.begin(), layer.tensors.end(), name) == layer.tensors.end())
            layer.tensors.push_back(name);
    }
    if (values_->lowered().program.output("value:" + node.name)) {
      layer.value = &values_->executable().output("value:" + node.name);
      layer.shape = type_of(*layer.value).shape.from(1);
    }
    layers_.push_back(std::move(layer));
  }
}

void LayerCards::take(const Snapshot& snapshot) {
  for (const auto& [name, t] : snapshot.weights().all())
    if (!t.fixed) std::memcpy(store_.find(name)->change(), t.data(), t.type.bytes());
}

// Copies the samples to the inputs of the programs, repeating them if there are fewer than needed.
void LayerCards::stage(const BatchSample& sample) {
  for (const Stream& s : streams_) {
    const uint64_t bytes = s.sample.bytes();
    for (uint64_t i = 0; i < batch_; ++i)
      std::memcpy(static_cast<std::byte*>(s.staged->data()) + i * bytes,
                  sample.streams.at(s.slot).data() + i % sample.count * bytes, bytes);
  }
}

void LayerCards::run(CompiledStep& step) {
  std::vector<const void*> pointers;
  for (int n : step.lowered().inputs)
    pointers.push_back(
        std::find_if(streams_.begin(), streams_.end(), [&](const Stream& s) { return s.node == n; })->staged->data());
  step.set(pointers.data(), 0, 1, seed_);
  step.set_keep(false);
  step.run();
}

json::object LayerCards::card(const Layer& layer, uint64_t samples, bool gradients) const {
  json::array tensors;
  double weights = 0, gradients_squared = 0;
  int64_t parameters = 0;
  bool learns = false;
  for (const std::string& name : layer.tensors) {
    const StoredTensor& t = store_.all().at(name);
    const auto gathered = store_.all().find(kGradient + name);
    const double norm = norm_of(t);
    json::value gradient(nullptr);
    if (gradients && gathered != store_.all().end()) {
      const double v = norm_of(gathered->second);
      gradient = json_number(v);
      gradients_squared += v * v;
      learns = true;
    }
    weights += norm * norm;
    parameters += t.type.shape.count();
    tensors.push_back({{"name", name},
                       {"shape", shape_json(t.type.shape)},
                       {"norm", json_number(norm)},
                       {"gradient_norm", std::move(gradient)}});
  }
  json::object o{{"name", layer.name},
                 {"shape", shape_json(layer.shape)},
                 {"parameters", parameters},
                 {"weight_norm", json_number(std::sqrt(weights))}};
  o["gradient_norm"] = learns ? json_number(std::sqrt(gradients_squared)) : json::value(nullptr);
  o["tensors"] = std::move(tensors);
  o["activation"] = samples > 0 && layer.value
                        ? activation(*layer.value, layer.shape.count() * static_cast<int64_t>(samples))
                        : json::value(nullptr);
  return o;
}

json::object LayerCards::cards(const Snapshot& snapshot, const BatchSample* sample) {
  take(snapshot);
  const uint64_t samples = sample ? std::min(sample->count, batch_) : 0;
  if (samples > 0) {
    stage(*sample);
    run(*values_);  // first, because the training program changes running statistics
    if (gradients_) run(*gradients_);
  }
  json::array layers;
  for (const Layer& layer : layers_) layers.push_back(card(layer, samples, samples > 0 && gradients_));
  json::object o{
      {"version", 1}, {"cycle", snapshot.version().cycle + 1}, {"step", snapshot.version().step}, {"samples", samples}};
  o["layers"] = std::move(layers);
  return o;
}

json::object LayerCards::tap(const Snapshot& snapshot, const BatchSample& sample, const std::string& edge,
                             uint64_t samples) {
  samples = std::min({samples, sample.count, batch_});
  const auto answer = [&](const char* kind, const TensorType& type, const std::byte* from) {
    json::array rows;
    for (uint64_t i = 0; i < samples; ++i) {
      json::array row;
      each_number(type, from + i * type.bytes(), type.shape.count(), [&](double v) { row.push_back(json_number(v)); });
      rows.push_back(std::move(row));
    }
    return json::object{{"version", 1},
                        {"edge", edge},
                        {"kind", kind},
                        {"cycle", snapshot.version().cycle + 1},
                        {"step", snapshot.version().step},
                        {"batch", sample.step},
                        {"shape", shape_json(type.shape)},
                        {"samples", std::move(rows)}};
  };
  for (const Stream& s : streams_)
    if (s.name == edge) return answer("producer", s.sample, sample.streams.at(s.slot).data());
  for (const Layer& layer : layers_) {
    if (layer.name != edge || !layer.value) continue;
    take(snapshot);
    stage(sample);
    run(*values_);
    return answer("layer", {type_of(*layer.value).dtype, layer.shape},
                  static_cast<const std::byte*>(layer.value->bytes()));
  }
  std::vector<std::string> known;
  for (const Stream& s : streams_) known.push_back(s.name);
  for (const Layer& layer : layers_)
    if (layer.value) known.push_back(layer.name);
  std::string all;
  for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
  const auto near = edge.size() < 256 ? nearest(edge, known) : std::nullopt;
  throw Error(ErrorKind::Usage, fmt::format("'{}' has no layer or producer of that name", graph_), {},
              {near ? "did you mean '" + *near + "'?" : "there are " + all});
}

}  // namespace harmonics::engine
