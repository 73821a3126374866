// Requested metrics, and the metrics of one pass over the tapped layers.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/metric.hpp>

#include "engine/flow/compiled_step.hpp"
#include "engine/flow/metric_window.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

// A metric and its bound arguments, parsed from "topk(5)" or "f1(average=micro)". Parsing throws ErrorKind::Name for
// unknown metrics and ErrorKind::Usage for wrong arguments.
struct MetricCall {
  std::string text;
  ItemPtr item;
  AttributeMap arguments;
};
MetricCall parse_metric(Registry& registry, const std::string& text);

// Returns the metric to request for a figure: "topk(5)" for "top5", "recall(average=micro)" for "recall_micro". Returns
// "" if no metric of the registry reports the figure.
std::string metric_giving(Registry& registry, const std::string& figure);

// The figures of one layer after a pass.
struct LayerFigures {
  std::string layer;
  bool classes = false;
  std::vector<Figure> figures;
  MetricTable table;  // true class by predicted class, if counted
  uint64_t rows = 0;  // rows measured

  const double* find(const std::string& name) const;
};

// The accumulated state of a metric of a layer, for a checkpoint.
struct MetricState {
  std::string metric;  // including its arguments
  bool kept = false;   // false if the metric cannot be saved
  std::vector<std::byte> bytes;
};
struct LayerState {
  std::string layer;
  uint64_t rows = 0;
  std::vector<MetricState> metrics;
};

// A metric object that is used through its C table.
class MeasuredMetric {
 public:
  explicit MeasuredMetric(const MetricCall& call);
  MeasuredMetric(MeasuredMetric&&) noexcept;
  MeasuredMetric& operator=(MeasuredMetric&&) = delete;
  ~MeasuredMetric();

  void add(const hx_metric_batch& batch);
  void reset();
  // Throws ErrorKind::Plugin for a figure whose name is empty, repeated, unprintable or that of the loss.
  void check_names();
  std::vector<Figure> figures();
  // Same as figures(), without allocation by the host. Valid until the next call of another function.
  std::span<const hx_figure> read();
  MetricTable table();  // side 0 if the metric has no table
  MetricState state();
  // Throws ErrorKind::Plugin, among others, if the metric rejects the state.
  void restore(const MetricState& state);
  const std::string& identity() const { return identity_; }  // name and arguments

 private:
  [[noreturn]] void fail() const;
  std::string text_, identity_;
  ItemPtr item_;
  const hx_metric_vt* table_ = nullptr;
  void* object_ = nullptr;
};

// Addresses of the predictions and targets of a compiled step, looked up once.
struct MetricAddresses {
  std::vector<const float*> predictions;  // by layer; null if the step does not drive it
  std::vector<const void*> targets;       // int32_t or float
  std::vector<int64_t> rows;
};

// The window of last samples for window metrics; 0 for none. `batch` is the batch size of the first step.
struct MetricSpan {
  int64_t samples = 0, batch = 1;
};

class LayerMetrics {
 public:
  // `suggested`: also measure the default metrics of the task. `table`: count true classes by predicted classes.
  LayerMetrics(Registry& registry, const std::vector<std::string>& asked, bool suggested, bool table,
               MetricSpan last = {});

  // Opens metrics for the new layers of a step that was lowered with `metric_inputs`.
  void open_layers(const Lowered& lowered);
  MetricAddresses outputs_of(const CompiledStep& step);
  // Throws ErrorKind::Usage if a requested metric fits none of the layers opened so far.
  void check_asked() const;
  // Adds `samples` samples of the last run of the step. Rows of an ignored class do not count.
  void add(const MetricAddresses& outputs, int64_t samples);
  // Same as add(), but copies the rows and counts them at commit().
  void hold(const MetricAddresses& outputs, int64_t samples);
  // Counts the held rows and ends a step.
  void commit();
  void reset();
  std::vector<LayerFigures> figures();

  // Passes the figures over the last samples to `take(layer, figure)`, layer by layer. Unless `all`, skips layers whose
  // window has not changed since the last call.
  template <typename Take>
  void read_windows(Take&& take, bool all = false) {
    for (Layer& layer : layers_) {
      if (!layer.last || !(layer.last->take_news() || all)) continue;
      judge_window(layer);
      for (MeasuredMetric& metric : layer.of_last)
        for (const hx_figure& figure : metric.read()) take(layer.name, figure);
    }
  }
  // Returns a message for each layer without a window, including the reason.
  const std::vector<std::string>& without_window() const { return without_window_; }
  std::map<std::string, MetricWindowState> windows() const;
  // Must be called before any layer is opened.
  void restore_windows(std::map<std::string, MetricWindowState> saved) { saved_windows_ = std::move(saved); }

  // Returns the state accumulated in this pass, without held rows.
  std::vector<LayerState> state();
  // Continues the pass from a saved state. Must be called before any layer is opened.
  void restore(std::vector<LayerState> saved);
  // A metric that could not continue from its saved state.
  struct BegunAnew {
    std::string metric, layer, why;
  };
  const std::vector<BegunAnew>& begun_anew() const { return begun_anew_; }

 private:
  struct Layer {
    std::string name;
    MetricInputs what;
    std::vector<MeasuredMetric> metrics;
    uint64_t rows = 0;
    std::vector<float> predictions = {};  // rows that count, if some do not
    std::vector<int32_t> labels = {};
    std::optional<MetricWindow> last = std::nullopt;
    std::vector<MeasuredMetric> of_last = {};
  };
  struct HeldRows {
    size_t layer = 0;
    uint64_t rows = 0, samples = 0;
    std::vector<float> predictions, targets;
    std::vector<int32_t> labels;
  };
  const LossInfo* find(const CompiledStep& step, const std::string& layer) const;
  void open(const LossInfo& info);
  void go_on(Layer& layer);
  void open_window(Layer& layer, const std::vector<MetricCall>& calls);
  void judge_window(Layer& layer);
  // Returns the results of the last run for a layer that the step drives.
  hx_metric_batch batch_of(Layer& layer, const MetricAddresses& outputs, size_t i);
  static void give(Layer& layer, const hx_metric_batch& batch, uint64_t samples);
  void take_counting_rows(Layer& layer, const float* predictions, const int32_t* labels, int64_t rows);
  static hx_metric_batch empty_batch(const Layer& layer);

  Registry& registry_;
  std::vector<MetricCall> asked_;
  bool suggested_, table_;
  MetricSpan last_;
  std::vector<Layer> layers_;
  std::vector<HeldRows> held_;  // of which the first held_count_ are in use
  size_t held_count_ = 0;
  std::optional<std::vector<LayerState>> saved_;  // state of a continued pass
  std::vector<BegunAnew> begun_anew_;
  std::map<std::string, MetricWindowState> saved_windows_;
  std::vector<std::string> without_window_;
};

}  // namespace harmonics::engine
