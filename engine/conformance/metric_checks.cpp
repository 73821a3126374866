// Checks of metrics: the value over a pass must not depend on its division into batches.
#include <cmath>
#include <cstddef>

#include <fmt/core.h>
#include <harmonics/metric_abi.h>

#include "engine/conformance/gradient_check.hpp"
#include "engine/conformance/item_checks.hpp"
#include "engine/contract/plugin_body.hpp"

namespace harmonics::engine {

namespace {

using Outcome = Finding::Outcome;
using Figures = std::vector<std::pair<std::string, double>>;

constexpr uint64_t kRows = 60, kOutputs = 8;
constexpr uint32_t kOfClasses = HX_TAKES_CLASSES, kOfNumbers = HX_TAKES_NUMBERS;

// A metric object of the plugin.
class Opened {
 public:
  explicit Opened(const ItemPtr& item) : item_(item) {
    const AttributeMap arguments = arguments_to_try(*item);
    const AttributeView view(arguments);
    expect(item->table<hx_metric_factory_vt>().open(item->self, view.get(), &table_, &object_));
  }
  ~Opened() {
    if (object_ && table_->destroy) table_->destroy(object_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  void add(const hx_metric_batch& batch) { expect(table_->add(object_, &batch)); }
  void reset() { expect(table_->reset(object_)); }
  // Saves the state and restores it in another object. Returns false if the metric does not support this.
  bool hand_over(Opened& to) {
    const size_t saves = offsetof(hx_metric_vt, restore) + sizeof table_->restore;
    if (table_->struct_size < saves || !table_->save || !table_->restore) return false;
    const void* bytes = nullptr;
    uint64_t size = 0;
    const hx_status status = table_->save(object_, &bytes, &size);
    if (status == HX_DECLINED) return false;
    expect(status);
    expect(to.table_->restore(to.object_, bytes, size));
    return true;
  }
  Figures figures() {
    const hx_figure* given = nullptr;
    uint32_t count = 0;
    expect(table_->figures(object_, &given, &count));
    Figures f;
    for (uint32_t i = 0; i < count; ++i) f.emplace_back(given[i].name, given[i].value);
    if (!f.empty()) return f;
    const double* cells = nullptr;  // a metric may consist of a table only
    uint32_t side = 0;
    if (table_->struct_size < offsetof(hx_metric_vt, destroy) || !table_->table) return f;
    if (const hx_status status = table_->table(object_, &cells, &side); status != HX_DECLINED) expect(status);
    for (uint32_t i = 0; i < side * side; ++i) f.emplace_back(fmt::format("cell {}", i), cells[i]);
    return f;
  }

 private:
  void expect(hx_status status) const {
    if (status != HX_OK) throw plugin_error(*item_, status);
  }
  ItemPtr item_;
  const hx_metric_vt* table_ = nullptr;
  void* object_ = nullptr;
};

struct Data {
  HTensor predictions =
      random_tensor({static_cast<int64_t>(kRows), static_cast<int64_t>(kOutputs)}, 1, 0.05, 0.95, DType::F32);
  HTensor targets =
      random_tensor({static_cast<int64_t>(kRows), static_cast<int64_t>(kOutputs)}, 2, 0.05, 0.95, DType::F32);
  HTensor labels = cast(random_indices({static_cast<int64_t>(kRows)}, 3, kOutputs), DType::I32);

  hx_metric_batch rows(uint64_t from, uint64_t count, bool classes) const {
    hx_metric_batch b{};
    b.struct_size = sizeof b;
    b.rows = count;
    b.outputs = kOutputs;
    b.classes = classes ? kOutputs : 0;
    b.predictions = predictions.data<float>() + from * kOutputs;
    if (classes)
      b.labels = labels.data<int32_t>() + from;
    else
      b.targets = targets.data<float>() + from * kOutputs;
    b.activation = classes ? "harmonics.activations/softmax" : "";
    return b;
  }
};

bool agree(const Figures& a, const Figures& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = std::isnan(a[i].second)
                          ? std::isnan(b[i].second)
                          : std::abs(a[i].second - b[i].second) <= 1e-9 * (1 + std::abs(a[i].second));
    if (a[i].first != b[i].first || !same) return false;
  }
  return true;
}

std::string text_of(const Figures& figures) {
  std::string s;
  for (size_t i = 0; i < figures.size() && i < 6; ++i)
    s += fmt::format("{}{} {:.4g}", i ? ", " : "", figures[i].first, figures[i].second);
  return figures.size() > 6 ? s + ", ..." : s;
}

}  // namespace

void check_metric(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  const Data data;
  const bool both = !(item->flags & (kOfClasses | kOfNumbers));
  for (const bool classes : {true, false}) {
    if (!both && !(item->flags & (classes ? kOfClasses : kOfNumbers))) continue;
    const std::string of = classes ? " of classes" : " of numbers";
    Figures whole;
    attempt(log, "gives figures" + of, [&]() -> Finding {
      Opened metric(item);
      metric.add(data.rows(0, kRows, classes));
      whole = metric.figures();
      if (whole.empty())
        return {Outcome::Failed, "neither values nor a table after 60 rows",
                "figures() gives each number with its name"};
      return {Outcome::Passed, text_of(whole), ""};
    });
    if (whole.empty()) continue;
    attempt(log, "does not depend on the batch size" + of, [&]() -> Finding {
      Opened metric(item);
      for (uint64_t at = 0; at < kRows; at += 7) metric.add(data.rows(at, std::min<uint64_t>(7, kRows - at), classes));
      const Figures parts = metric.figures();
      if (agree(whole, parts)) return {};
      return {Outcome::Failed, text_of(parts) + " in batches of 7, " + text_of(whole) + " at once",
              "keep sums and counts, not means of batches"};
    });
    attempt(log, "forgets" + of, [&]() -> Finding {
      Opened metric(item);
      metric.add(data.rows(0, 13, classes));
      metric.reset();
      metric.add(data.rows(0, kRows, classes));
      if (agree(whole, metric.figures())) return {};
      return {Outcome::Failed, "after reset() the values differ from those of a new metric",
              "reset() clears all state"};
    });
  }
  const bool of_classes = both || (item->flags & kOfClasses);
  attempt(log, "can be saved and restored", [&]() -> Finding {
    Opened before(item), after(item), undisturbed(item);
    for (Opened* metric : {&after, &undisturbed}) metric->add(data.rows(0, 0, of_classes));
    before.add(data.rows(0, 13, of_classes));
    if (!before.hand_over(after))
      return {Outcome::Noted, "cannot be saved in a checkpoint: a resumed run measures only the rest of its epoch",
              "save() returns the gathered state, restore() accepts it"};
    undisturbed.add(data.rows(0, 13, of_classes));
    for (Opened* metric : {&after, &undisturbed}) metric->add(data.rows(13, kRows - 13, of_classes));
    if (agree(undisturbed.figures(), after.figures())) return {};
    return {Outcome::Failed, "after restore() the values differ from those of an uninterrupted pass",
            "save() returns everything that add() gathers"};
  });
  attempt(log, "many passes", [&] {
    CheckSettings fewer = settings;
    fewer.calls = settings.calls / 10;
    return many_calls(fewer, [&] {
      Opened metric(item);
      metric.add(data.rows(0, kRows, of_classes));
      metric.figures();
    });
  });
}

}  // namespace harmonics::engine
