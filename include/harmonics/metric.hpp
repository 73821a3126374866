// Metrics, accumulated over a pass and read at its end.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <harmonics/function.hpp>
#include <harmonics/metric_abi.h>

namespace harmonics {

// Predictions and targets, row by row: samples, times positions if there are any. Valid during the call. Either labels
// or targets are set.
struct MetricBatch {
  uint64_t rows = 0, outputs = 0;
  uint64_t classes = 0;                // of labels: equal to outputs, or 2 if the output is the second's probability
  const float* predictions = nullptr;  // [rows, outputs], the layer's values
  const int32_t* labels = nullptr;     // [rows], each below classes
  const float* targets = nullptr;      // [rows, outputs]
  const char* activation = "";         // identity ("plugin-id/name") of the arrow's last function; "": none
};

// A named value: "accuracy", "f1.3". NaN: undefined for these data.
struct Figure {
  std::string name;
  double value;
};

// Confusion matrix: truth (rows) by prediction (columns).
struct MetricTable {
  uint32_t side = 0;  // 0: none
  std::vector<double> cells;
};

// Never called concurrently.
class Metric {
 public:
  virtual void add(const MetricBatch& batch) = 0;
  virtual void reset() = 0;  // starts a new pass
  virtual std::vector<Figure> figures() const = 0;
  virtual MetricTable table() const { return {}; }
  // Returns the state since reset(), for a checkpoint; nullopt: unsupported, which a resumed run reports.
  virtual std::optional<std::vector<std::byte>> save() const { return std::nullopt; }
  // Restores the bytes of save() of a metric with equal arguments, possibly in another process. Called before the first
  // rows.
  virtual void restore(const std::vector<std::byte>& saved) {
    throw Error(ErrorKind::Plugin, "cannot restore its saved state (" + std::to_string(saved.size()) + " bytes)");
  }
  virtual ~Metric() = default;
};

namespace detail {

// The host's handle of a metric: the C++ object, and its last results, to which the host has pointers.
struct HeldMetric {
  std::unique_ptr<Metric> metric;
  std::vector<Figure> given;
  std::vector<hx_figure> figures;
  MetricTable table;
  std::optional<std::vector<std::byte>> saved;
};
HARMONICS_FACE inline const hx_metric_vt* metric_vt() {
  static const hx_metric_vt vt = {
      sizeof(hx_metric_vt),
      [](void* self, const hx_metric_batch* b) {
        return guarded([&] {
          static_cast<HeldMetric*>(self)->metric->add(
              {b->rows, b->outputs, b->classes, b->predictions, b->labels, b->targets, b->activation});
          return HX_OK;
        });
      },
      [](void* self) { return guarded([&] { return static_cast<HeldMetric*>(self)->metric->reset(), HX_OK; }); },
      [](void* self, const hx_figure** out, uint32_t* count) {
        return guarded([&] {
          auto& held = *static_cast<HeldMetric*>(self);
          held.given = held.metric->figures();
          held.figures.clear();
          for (const Figure& f : held.given) held.figures.push_back({f.name.c_str(), f.value});
          *out = held.figures.data();
          *count = static_cast<uint32_t>(held.figures.size());
          return HX_OK;
        });
      },
      [](void* self, const double** cells, uint32_t* side) {
        return guarded([&] {
          auto& held = *static_cast<HeldMetric*>(self);
          held.table = held.metric->table();
          *cells = held.table.cells.data();
          *side = held.table.side;
          return held.table.side ? HX_OK : HX_DECLINED;
        });
      },
      [](void* self) { delete static_cast<HeldMetric*>(self); },
      [](void* self, const void** bytes, uint64_t* size) {
        return guarded([&] {
          auto& held = *static_cast<HeldMetric*>(self);
          held.saved = held.metric->save();
          if (!held.saved) return HX_DECLINED;
          *bytes = held.saved->data();
          *size = held.saved->size();
          return HX_OK;
        });
      },
      [](void* self, const void* bytes, uint64_t size) {
        return guarded([&] {
          const auto* from = static_cast<const std::byte*>(bytes);
          static_cast<HeldMetric*>(self)->metric->restore({from, from + size});
          return HX_OK;
        });
      }};
  return &vt;
}
HARMONICS_FACE inline const hx_metric_factory_vt* metric_factory_vt() {
  static const hx_metric_factory_vt vt = {
      sizeof(hx_metric_factory_vt),
      [](void* self, const hx_attributes* args, const hx_metric_vt** out_vt, void** object) {
        return guarded([&] {
          auto metric = (*static_cast<MetricFactory*>(self))(Arguments(args));
          if (!metric) throw Error(ErrorKind::Plugin, "the metric's factory returned nothing");
          *out_vt = metric_vt();
          *object = new HeldMetric{std::move(metric), {}, {}, {}, {}};
          return HX_OK;
        });
      },
      [](void* self) { delete static_cast<MetricFactory*>(self); }};
  return &vt;
}

}  // namespace detail

HARMONICS_FACE inline void FunctionRegistry::register_metric(const std::string& name, MetricFactory open,
                                                             const std::string& description,
                                                             const std::vector<Argument>& arguments, uint32_t flags) {
  add(HX_METRIC, name, description, arguments, flags, detail::held(std::move(open), "metric", name),
      [] { return static_cast<const void*>(detail::metric_factory_vt()); });
}

}  // namespace harmonics
