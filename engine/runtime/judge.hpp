// What a run is asked to measure, and the metrics of one pass over the tapped layers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/metric.hpp>

#include "engine/plugin/registry.hpp"
#include "engine/program/attributes.hpp"
#include "engine/runtime/compiled_step.hpp"

namespace harmonics {

// "topk(5)", "f1(average=micro)": a metric with its arguments bound. ErrorKind::Name for unknown ones, Usage for arguments.
struct MetricCall {
  std::string text;
  ItemPtr item;
  AttributeMap arguments;
};
MetricCall parse_metric(Registry& registry, const std::string& text);

// Could a metric of the registry give a figure of this name ("top5", "f1.3", "recall_micro")?
bool is_figure_name(Registry& registry, const std::string& name);

// What a pass gave for one layer.
struct LayerFigures {
  std::string layer;
  bool classes = false;
  std::vector<Figure> figures;
  MetricTable table;  // truth by prediction, when it was counted

  const double* find(const std::string& name) const;
};

// A metric object behind its C table.
class MeasuredMetric {
 public:
  explicit MeasuredMetric(const MetricCall& call);
  MeasuredMetric(MeasuredMetric&&) noexcept;
  MeasuredMetric& operator=(MeasuredMetric&&) = delete;
  ~MeasuredMetric();

  void add(const hx_metric_batch& batch);
  void reset();
  std::vector<Figure> figures();
  MetricTable table();  // side 0: it has none

 private:
  [[noreturn]] void fail() const;
  std::string text_;
  ItemPtr item_;
  const hx_metric_vt* table_ = nullptr;
  void* object_ = nullptr;
};

// Where the predictions and targets of a compiled step lie, resolved once.
struct JudgedOutputs {
  std::vector<const float*> predictions;  // by judged layer; null: the step does not drive it
  std::vector<const void*> targets;       // int32_t or float
  std::vector<int64_t> rows;
};

class Judge {
 public:
  // `suggested`: also what the task suggests. `table`: counts truth by prediction.
  Judge(Registry& registry, const std::vector<std::string>& asked, bool suggested, bool table);

  // Of a step that was lowered with `judge`; opens the metrics of layers that are new.
  JudgedOutputs outputs_of(const CompiledStep& step);
  // ErrorKind::Usage when something that was asked for fits no layer so far.
  void check_asked() const;
  // What the step's last run said. Rows whose class is ignored do not count.
  void add(const JudgedOutputs& outputs);
  void reset();
  std::vector<LayerFigures> figures();

 private:
  struct Layer {
    std::string name;
    Judged what;
    std::vector<MeasuredMetric> metrics;
    std::vector<float> predictions;  // of the rows that count, when some do not
    std::vector<int32_t> labels;
  };
  const LossInfo* find(const CompiledStep& step, const std::string& layer) const;
  void open(const LossInfo& info);
  void take_counting_rows(Layer& layer, const float* predictions, const int32_t* labels, int64_t rows);
  static hx_metric_batch batch_of(const Layer& layer);

  Registry& registry_;
  std::vector<MetricCall> asked_;
  bool suggested_, table_;
  std::vector<Layer> layers_;
};

}  // namespace harmonics
