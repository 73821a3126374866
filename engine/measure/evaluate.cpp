#include "engine/measure/evaluate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <stop_token>
#include <thread>

#include <fmt/core.h>

#include "engine/flow/metrics.hpp"

namespace harmonics::engine {

namespace {

// Lowers the cycle with the first branch of every condition or, if there the loss is missing, with the second.
Lowered lower_tapped(BoundGraph& graph, LoweringOptions options) {
  const Graph& g = graph.graph();
  for (const bool hold : {true, false}) {
    options.branches = g.branches(options.cycle, hold);
    Lowered lowered = graph.lower(options);
    if (lowered.program.output("loss")) return lowered;
  }
  throw Error(ErrorKind::Usage, "this cycle has no training tap, so nothing can be tested");
}

// Returns a reader over the producers used in training, in the same order. Throws if their data is missing or
// unsuitable.
std::unique_ptr<JointReader> reader_of(BoundGraph& graph, int cycle, StreamSet& streams,
                                       const ResolvedSettings& settings, Purpose purpose) {
  const Graph& g = graph.graph();
  const char* flag = purpose == Purpose::test ? "test" : "validate";
  const char* word = purpose == Purpose::test ? "test" : "validation";
  const std::vector<int> producers = g.producers_used(cycle, true);
  for (int n : producers)
    if (!streams.bound(n)) {
      const std::string& name = g.nodes[static_cast<size_t>(n)].name;
      throw Error(ErrorKind::Usage, fmt::format("producer '{}' has no {} data", name, word), {},
                  {fmt::format("give it: --{} {}=file:PATH", flag, name)});
    }
  check_same_samples(g, graph.types(), streams.types(g), word);
  auto reader = streams.reader(g, producers, streams.batch().value_or(static_cast<uint64_t>(settings.batch)), false,
                               settings.seed, settings.unpaired);
  if (reader->size() == 0)
    throw Error(
        ErrorKind::Usage, fmt::format("{} data must be finite", word), {},
        {reader->live() ? "say how many samples each evaluation takes from the live stream: take=N in its address"
                        : "limit an endless stream: take=N in its address"});
  return reader;
}

// A thread that ends the streams of a reader once `stops` returns true.
class StopWatch {
 public:
  StopWatch(JointReader& reader, const std::function<bool()>& stops)
      : thread_([&reader, &stops](const std::stop_token& over) {
          constexpr auto kLook = std::chrono::milliseconds(20);
          std::mutex mutex;
          std::condition_variable_any wake;
          std::unique_lock<std::mutex> lock(mutex);
          while (!wake.wait_for(lock, over, kLook, [&] { return over.stop_requested(); })) {
            if (!stops()) continue;
            reader.cut();
            for (size_t i = 0; i < reader.members(); ++i) reader.source(i).cancel();
            return;
          }
        }) {}

 private:
  std::jthread thread_;
};

// Accumulates the parts of a loss. Each part is a mean over its counted positions; the loss is their sum.
class Means {
 public:
  explicit Means(size_t parts) : sums_(parts) {}
  void add(const std::vector<BatchMean>& parts, double samples) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const double weight = parts[i].weight(samples);
      if (weight > 0) sums_[i].add({*parts[i].value * weight, weight, samples, samples});
    }
  }
  bool counts() const {
    return std::any_of(sums_.begin(), sums_.end(), [](const StepSums& part) { return part.weight > 0; });
  }
  // Returns NaN if no position counts.
  double mean() const {
    double sum = 0;
    for (const StepSums& part : sums_) sum += part.mean();
    return counts() && !std::isnan(sum) ? sum
                                        : std::numeric_limits<double>::quiet_NaN();  // the sign of a NaN is meaningless
  }

 private:
  std::vector<StepSums> sums_;
};

// Returns the figures of a layer. Adds the layer if no metric compares its values.
LayerFigures& layer_figures(std::vector<LayerFigures>& layers, const std::string& name) {
  for (LayerFigures& layer : layers)
    if (layer.layer == name) return layer;
  return layers.emplace_back(LayerFigures{name, false, {}, {}, 0});
}

}  // namespace

std::optional<std::string> expect_evaluable(BoundGraph& graph, int cycle, StreamSet& streams,
                                            const RunSettings& settings, Purpose purpose) {
  return reader_of(graph, cycle, streams, graph.settings(cycle, settings), purpose)->unequal_lengths();
}

const double* Evaluation::find(const std::string& name) const {
  if (name == "loss") return &loss;
  for (const LayerFigures& layer : layers) {
    if (const double* v = layer.find(name)) return v;
    if (name.rfind(layer.layer + ".", 0) == 0)
      if (const double* v = layer.find(name.substr(layer.layer.size() + 1))) return v;
  }
  return nullptr;
}

Evaluator::Evaluator(BoundGraph& graph, int cycle, StreamSet& streams, const RunSettings& run, Purpose purpose)
    : graph_(graph),
      run_(run),
      settings_(graph.settings(cycle, run)),
      cycle_(cycle),
      reader_(reader_of(graph, cycle, streams, settings_, purpose)) {
  const uint64_t batch = reader_->options().batch;
  most_ = std::min(batch, reader_->size());
  for (size_t i = 0; i < reader_->members(); ++i) {
    buffers_.push_back(std::make_shared<Storage>(reader_->bytes(i) * most_));
    targets_.push_back(buffers_.back()->data());
  }
  first();
}

void Evaluator::first() {
  layer_metrics_.emplace(graph_.registry(), run_.metrics, true, run_.confusion);
  compiled(most_);
  layer_metrics_->check_asked();
}

void Evaluator::renew() {
  steps_.clear();
  first();
}

Evaluator::Step& Evaluator::compiled(uint64_t batch) {
  Step& step = steps_[batch];
  if (step.step) return step;
  LoweringOptions o;
  o.mode = Mode::evaluate;
  o.cycle = cycle_;
  o.seed = settings_.seed;
  o.batch = static_cast<int64_t>(batch);
  o.metric_inputs = true;
  const CompileOptions c = graph_.compile_options(run_);
  step.step = std::make_unique<CompiledStep>(lower_tapped(graph_, o), graph_.store(), graph_.executor(run_.threads), c);
  step.outputs = layer_metrics_->outputs_of(*step.step);
  return step;
}

std::optional<Evaluation> Evaluator::run(const std::function<bool()>& stops) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  Evaluation result;
  const Lowered& lowered = steps_.begin()->second.step->lowered();
  Means loss(lowered.parts.size());
  std::vector<Means> layer_loss;
  std::vector<std::vector<StepSums>> figures;  // by loss, then by figure
  for (const LossInfo& info : lowered.losses) {
    layer_loss.emplace_back(info.parts.size());
    figures.emplace_back(info.figures.size());
  }
  if (live())
    reader_->go_on();
  else
    reader_->begin(0);
  layer_metrics_->reset();
  const auto stopped = [&] { return stops && stops(); };
  if (stopped()) return std::nullopt;
  std::optional<StopWatch> watch;
  if (live() && stops) watch.emplace(*reader_, stops);
  while (const uint64_t n = reader_->read(most_, targets_.data())) {
    if (stopped()) return std::nullopt;
    Step& at = compiled(n);
    at.step->check_indices(targets_.data());
    at.step->set(targets_.data(), 0, 1, settings_.seed);
    at.step->run();
    loss.add(at.step->parts(), static_cast<double>(n));
    for (size_t i = 0; i < layer_loss.size(); ++i) layer_loss[i].add(at.step->layer_parts(i), static_cast<double>(n));
    for (size_t i = 0; i < figures.size(); ++i)
      for (size_t k = 0; k < figures[i].size(); ++k)
        figures[i][k].add({*at.step->figures(i)[k].value * static_cast<double>(n), static_cast<double>(n),
                           static_cast<double>(n), static_cast<double>(n)});
    layer_metrics_->add(at.outputs, static_cast<int64_t>(n));
    result.samples += static_cast<int64_t>(n);
  }
  if (watch && stopped()) return std::nullopt;
  result.left_over = reader_->left_over();
  result.counts = loss.counts();
  if (live() && result.samples == 0) return result;  // metrics need rows
  result.loss = loss.mean();
  result.layers = layer_metrics_->figures();
  for (size_t i = 0; i < figures.size(); ++i)
    for (size_t k = 0; k < figures[i].size(); ++k)
      layer_figures(result.layers, lowered.losses[i].name)
          .figures.push_back({lowered.losses[i].figures[k].name, figures[i][k].mean()});
  for (size_t i = 0; i < layer_loss.size(); ++i)
    for (LayerFigures& f : result.layers)
      if (f.layer == lowered.losses[i].name) f.figures.insert(f.figures.begin(), {"loss", layer_loss[i].mean()});
  if (const double* accuracy = result.find("accuracy")) result.accuracy = *accuracy;
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return result;
}

std::vector<std::string> Evaluator::names() {
  std::vector<std::string> names{"loss"};
  std::vector<LayerFigures> layers = layer_metrics_->figures();
  for (const LossInfo& info : steps_.begin()->second.step->lowered().losses)
    for (const LossFigure& figure : info.figures) layer_figures(layers, info.name).figures.push_back({figure.name, 0});
  for (const LayerFigures& layer : layers) {
    names.push_back(layer.layer + ".loss");
    for (const Figure& f : layer.figures) {
      if (std::find(names.begin(), names.end(), f.name) == names.end()) names.push_back(f.name);
      names.push_back(layer.layer + "." + f.name);
    }
  }
  return names;
}

std::map<std::string, double> Evaluation::all() const {
  std::map<std::string, double> values{{"loss", loss}};
  for (const LayerFigures& layer : layers)
    for (const Figure& f : layer.figures) {
      values.emplace(f.name, f.value);  // keeps the value of the first layer
      values.emplace(layer.layer + "." + f.name, f.value);
    }
  return values;
}

Evaluation evaluate(BoundGraph& graph, int cycle, StreamSet& streams, const RunSettings& settings, Purpose purpose) {
  return *Evaluator(graph, cycle, streams, settings, purpose).run();
}

}  // namespace harmonics::engine
