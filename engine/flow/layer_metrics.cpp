#include "engine/flow/layer_metrics.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <set>

#include <fmt/core.h>

#include "engine/contract/plugin_body.hpp"
#include "engine/plugin/arguments.hpp"

namespace harmonics::engine {

namespace {

std::string trimmed(const std::string& s) {
  const size_t a = s.find_first_not_of(" \t"), b = s.find_last_not_of(" \t");
  return a == std::string::npos ? std::string() : s.substr(a, b - a + 1);
}

// Names the positional arguments of "5, average=micro", in the order of the schema.
std::vector<std::pair<std::string, std::string>> named_texts(const Item& item, const std::string& text,
                                                             const std::string& inside) {
  std::vector<std::pair<std::string, std::string>> result = split_arguments(inside);
  size_t position = 0;
  for (auto& [name, value] : result) {
    if (!name.empty()) continue;
    if (position >= item.arguments.size())
      throw Error(ErrorKind::Usage, fmt::format("'{}' has more arguments than metric '{}' takes", text, item.name), {},
                  {"it is written " + signature(item)});
    name = item.arguments[position++].name;
  }
  return result;
}

// The loss of a run has this name.
constexpr const char* kLoss = "loss";

bool fits(const MetricCall& call, const MetricInputs& what) {
  constexpr uint32_t classes = HX_TAKES_CLASSES, numbers = HX_TAKES_NUMBERS;
  const uint32_t takes = call.item->flags & (classes | numbers);
  return takes == 0 || (takes & (what.classes ? classes : numbers));
}

constexpr size_t kSaves = offsetof(hx_metric_vt, restore) + sizeof(hx_metric_vt::restore);  // size of a table with
                                                                                            // these members

// Returns the default metrics of a task.
std::vector<std::string> suggestions(const MetricInputs& what) {
  if (what.shifts) return {"perplexity"};
  if (what.classes) return {"accuracy"};
  return {"mae", "rmse"};
}

}  // namespace

MetricCall parse_metric(Registry& registry, const std::string& given) {
  const std::string text = trimmed(given);
  const size_t open = text.find('(');
  MetricCall call{text, registry.need(HX_METRIC, trimmed(text.substr(0, open))), {}};
  std::string inside;
  if (open != std::string::npos) {
    if (text.back() != ')')
      throw Error(ErrorKind::Usage, fmt::format("metric '{}' lacks its closing parenthesis", text), {},
                  {"it is written " + signature(*call.item)});
    inside = text.substr(open + 1, text.size() - open - 2);
  }
  call.arguments = bind_texts(*call.item, named_texts(*call.item, text, inside));
  return call;
}

std::string metric_giving(Registry& registry, const std::string& figure) {
  for (const std::string& metric : registry.names(HX_METRIC)) {
    const std::string start = metric == "topk" ? "top" : metric;
    if (figure.rfind(start, 0) != 0) continue;
    const std::string rest = figure.substr(start.size());
    if (rest.empty()) return metric;
    if (rest[0] == '_') return fmt::format("{}(average={})", metric, rest.substr(1));
    if (rest[0] == '.') return metric + "(average=none)";
    if (metric == "topk" && std::isdigit(static_cast<unsigned char>(rest[0]))) return fmt::format("topk({})", rest);
  }
  return {};
}

const double* LayerFigures::find(const std::string& name) const {
  for (const Figure& f : figures)
    if (f.name == name) return &f.value;
  return nullptr;
}

MeasuredMetric::MeasuredMetric(const MetricCall& call)
    : text_(call.text), identity_(call.item->name + call.arguments.str()), item_(call.item) {
  const auto& factory = item_->table<hx_metric_factory_vt>();
  const AttributeView arguments(call.arguments);
  if (factory.open(item_->self, arguments.get(), &table_, &object_) != HX_OK) fail();
}
MeasuredMetric::MeasuredMetric(MeasuredMetric&& other) noexcept
    : text_(std::move(other.text_)),
      identity_(std::move(other.identity_)),
      item_(std::move(other.item_)),
      table_(other.table_),
      object_(other.object_) {
  other.object_ = nullptr;
}
MeasuredMetric::~MeasuredMetric() {
  if (object_ && table_->destroy) table_->destroy(object_);
}

void MeasuredMetric::fail() const {
  uint32_t kind = HX_ERROR_INTERNAL;
  const char* text = detail::api()->last_error(&kind);
  const Error said = detail::error_of(static_cast<ErrorKind>(kind), text && *text ? text : "failed without a reason");
  throw Error(said.kind(),
              fmt::format("metric '{}'{}: {}", text_,
                          is_shipped(*item_) ? "" : fmt::format(" of plugin '{}'", item_->plugin), said.what()),
              {}, said.notes());
}

void MeasuredMetric::check_names() {
  std::set<std::string> names;
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  for (const Figure& figure : figures()) {
    const char* wrong = figure.name.empty() ? "without a name"
                        : std::any_of(figure.name.begin(), figure.name.end(), is_control)
                            ? "with a control character in its name"
                        : figure.name == kLoss              ? "named 'loss', as the loss of the run"
                        : !names.insert(figure.name).second ? "twice"
                                                            : nullptr;
    if (!wrong) continue;
    std::string shown = figure.name;
    std::replace_if(shown.begin(), shown.end(), is_control, '?');
    harmonics_api()->set_error(
        HX_ERROR_PLUGIN, fmt::format("gives the figure '{}' {}\ngive each figure its own name", shown, wrong).c_str());
    fail();
  }
}

void MeasuredMetric::add(const hx_metric_batch& batch) {
  if (table_->add(object_, &batch) != HX_OK) fail();
}
void MeasuredMetric::reset() {
  if (table_->reset(object_) != HX_OK) fail();
}

std::span<const hx_figure> MeasuredMetric::read() {
  const hx_figure* given = nullptr;
  uint32_t count = 0;
  if (table_->figures(object_, &given, &count) != HX_OK) fail();
  return {given, count};
}

std::vector<Figure> MeasuredMetric::figures() {
  std::vector<Figure> result;
  for (const hx_figure& f : read()) result.push_back({f.name ? f.name : "", f.value});
  return result;
}

MetricTable MeasuredMetric::table() {
  if (table_->struct_size < offsetof(hx_metric_vt, table) + sizeof table_->table || !table_->table) return {};
  const double* cells = nullptr;
  uint32_t side = 0;
  const hx_status status = table_->table(object_, &cells, &side);
  if (status == HX_DECLINED) return {};
  if (status != HX_OK) fail();
  return {side, {cells, cells + static_cast<size_t>(side) * side}};
}

MetricState MeasuredMetric::state() {
  MetricState state{identity_, false, {}};
  if (table_->struct_size < kSaves || !table_->save || !table_->restore) return state;
  const void* bytes = nullptr;
  uint64_t size = 0;
  const hx_status status = table_->save(object_, &bytes, &size);
  if (status == HX_DECLINED) return state;
  if (status != HX_OK) fail();
  const auto* from = static_cast<const std::byte*>(bytes);
  state.bytes.assign(from, from + size);
  state.kept = true;
  return state;
}

void MeasuredMetric::restore(const MetricState& state) {
  if (!state.kept || table_->struct_size < kSaves || !table_->restore)
    throw Error(ErrorKind::Plugin, "it cannot be kept in a checkpoint");
  if (table_->restore(object_, state.bytes.data(), state.bytes.size()) != HX_OK) fail();
}

LayerMetrics::LayerMetrics(Registry& registry, const std::vector<std::string>& asked, bool suggested, bool table,
                           MetricSpan last)
    : registry_(registry), suggested_(suggested), table_(table), last_(last) {
  for (const std::string& text : asked) asked_.push_back(parse_metric(registry, text));
}

void LayerMetrics::check_asked() const {
  for (const MetricCall& call : asked_)
    if (std::none_of(layers_.begin(), layers_.end(), [&](const Layer& l) { return fits(call, l.what); }))
      throw Error(ErrorKind::Usage,
                  fmt::format("metric '{}' compares {}, but {}", call.text,
                              call.item->flags & HX_TAKES_CLASSES ? "classes" : "numbers",
                              layers_.empty() ? "no layer has a training tap"
                                              : fmt::format("the target of '{}' holds {}", layers_.front().name,
                                                            layers_.front().what.classes ? "classes" : "numbers")),
                  {},
                  {"'harmonics list metrics' lists metrics; a target holds classes if it has an integer type and the "
                   "loss takes classes"});
}

void LayerMetrics::open(const LossInfo& info) {
  Layer& layer = layers_.emplace_back(Layer{info.name, *info.metric_inputs, {}, 0});
  std::vector<MetricCall> calls;
  if (suggested_)
    for (const std::string& text : suggestions(layer.what)) calls.push_back(parse_metric(registry_, text));
  if (table_ && layer.what.classes && !layer.what.shifts) calls.push_back(parse_metric(registry_, "confusion"));
  for (const MetricCall& call : asked_)
    if (fits(call, layer.what)) calls.push_back(call);
  std::set<std::pair<std::string, std::string>> opened;
  const hx_metric_batch nothing = empty_batch(layer);
  for (const MetricCall& call : calls) {
    if (!opened.emplace(call.item->name, call.arguments.str()).second) continue;
    layer.metrics.emplace_back(call);
    layer.metrics.back().add(nothing);  // an empty batch names the figures from the start
    layer.metrics.back().check_names();
  }
  if (saved_) go_on(layer);
  if (last_.samples > 0) open_window(layer, calls);
}

// Opens separate metrics over the rows of the window, which measure only the last samples.
void LayerMetrics::open_window(Layer& layer, const std::vector<MetricCall>& calls) {
  const auto outputs = static_cast<uint64_t>(layer.what.outputs),
             samples = static_cast<uint64_t>(std::max(last_.samples, last_.batch));
  const uint64_t bytes = MetricWindow::bytes(
      samples, static_cast<uint64_t>(std::max<int64_t>(layer.what.rows / std::max<int64_t>(last_.batch, 1), 1)),
      outputs, layer.what.classes);
  if (bytes > MetricWindow::kMostBytes) {
    without_window_.push_back(
        fmt::format("window metrics of '{}' are off: its predictions of the last {} samples need {} MiB, the limit is "
                    "{} MiB; use a smaller --window",
                    layer.name, last_.samples, bytes >> 20, MetricWindow::kMostBytes >> 20));
    return;
  }
  layer.last.emplace(static_cast<uint64_t>(last_.samples), outputs, layer.what.classes);
  if (const auto saved = saved_windows_.find(layer.name); saved != saved_windows_.end()) {
    const auto& labels = saved->second.labels;
    const bool known = std::all_of(labels.begin(), labels.end(),
                                   [&](int32_t label) { return label >= 0 && label < layer.what.n_classes; });
    if (known) layer.last->restore(saved->second);  // otherwise the state belongs to another layer of this name
  }
  std::set<std::pair<std::string, std::string>> opened;
  for (const MetricCall& call : calls)
    if (opened.emplace(call.item->name, call.arguments.str()).second) layer.of_last.emplace_back(call);
}

void LayerMetrics::judge_window(Layer& layer) {
  hx_metric_batch batch = empty_batch(layer);
  if (layer.last->rows() > 0) layer.last->fill(batch);
  for (MeasuredMetric& metric : layer.of_last) {
    metric.reset();
    metric.add(batch);
  }
}

std::map<std::string, MetricWindowState> LayerMetrics::windows() const {
  std::map<std::string, MetricWindowState> all;
  for (const Layer& layer : layers_)
    if (layer.last) all[layer.name] = layer.last->state();
  return all;
}

void LayerMetrics::restore(std::vector<LayerState> saved) { saved_ = std::move(saved); }

void LayerMetrics::go_on(Layer& layer) {
  const auto from =
      std::find_if(saved_->begin(), saved_->end(), [&](const LayerState& s) { return s.layer == layer.name; });
  if (from != saved_->end()) layer.rows = from->rows;
  for (MeasuredMetric& metric : layer.metrics) {
    const auto begins_anew = [&](const std::string& why) {
      begun_anew_.push_back({metric.identity(), layer.name, why});
    };
    if (from == saved_->end()) {
      begins_anew("the checkpoint does not hold it");
      continue;
    }
    const auto state = std::find_if(from->metrics.begin(), from->metrics.end(),
                                    [&](const MetricState& s) { return s.metric == metric.identity(); });
    try {
      if (state == from->metrics.end())
        begins_anew("the checkpoint does not hold it");
      else
        metric.restore(*state);
    } catch (const Error& e) {
      begins_anew(e.what());
      metric.reset();
    }
  }
}

std::vector<LayerState> LayerMetrics::state() {
  std::vector<LayerState> all;
  for (Layer& layer : layers_) {
    LayerState& state = all.emplace_back(LayerState{layer.name, layer.rows, {}});
    for (MeasuredMetric& metric : layer.metrics) state.metrics.push_back(metric.state());
  }
  return all;
}

hx_metric_batch LayerMetrics::empty_batch(const Layer& layer) {
  static constexpr int32_t kNoLabel = 0;
  static constexpr float kNoNumber = 0;
  hx_metric_batch b{};
  b.struct_size = sizeof b;
  b.outputs = static_cast<uint64_t>(layer.what.outputs);
  b.classes = static_cast<uint64_t>(layer.what.n_classes);
  b.predictions = &kNoNumber;
  if (layer.what.classes)
    b.labels = &kNoLabel;
  else
    b.targets = &kNoNumber;
  b.activation = layer.what.activation.c_str();
  return b;
}

const LossInfo* LayerMetrics::find(const CompiledStep& step, const std::string& layer) const {
  for (const LossInfo& info : step.lowered().losses)
    if (info.name == layer && info.metric_inputs) return &info;
  return nullptr;
}

void LayerMetrics::open_layers(const Lowered& lowered) {
  for (const LossInfo& info : lowered.losses)
    if (info.metric_inputs &&
        std::none_of(layers_.begin(), layers_.end(), [&](const Layer& l) { return l.name == info.name; }))
      open(info);
}

MetricAddresses LayerMetrics::outputs_of(const CompiledStep& step) {
  open_layers(step.lowered());
  MetricAddresses result;
  for (const Layer& layer : layers_) {
    const LossInfo* info = find(step, layer.name);
    const HTensor* target = info ? &step.executable().output(layer.name + ".target") : nullptr;
    result.predictions.push_back(info ? step.executable().output(layer.name + ".prediction").data<float>() : nullptr);
    result.targets.push_back(!info                          ? nullptr
                             : info->metric_inputs->classes ? static_cast<const void*>(target->data<int32_t>())
                                                            : target->data<float>());
    result.rows.push_back(info ? info->metric_inputs->rows : 0);
  }
  return result;
}

hx_metric_batch LayerMetrics::batch_of(Layer& layer, const MetricAddresses& outputs, size_t i) {
  hx_metric_batch batch = empty_batch(layer);
  batch.rows = static_cast<uint64_t>(outputs.rows[i]);
  batch.predictions = outputs.predictions[i];
  if (!layer.what.classes) {
    batch.targets = static_cast<const float*>(outputs.targets[i]);
  } else if (layer.what.shifts || layer.what.ignored) {
    take_counting_rows(layer, outputs.predictions[i], static_cast<const int32_t*>(outputs.targets[i]), outputs.rows[i]);
    batch.rows = layer.labels.size();
    batch.predictions = layer.predictions.data();
    batch.labels = layer.labels.data();
  } else {
    batch.labels = static_cast<const int32_t*>(outputs.targets[i]);
  }
  return batch;
}

void LayerMetrics::give(Layer& layer, const hx_metric_batch& batch, uint64_t samples) {
  layer.rows += batch.rows;
  if (layer.last) layer.last->add(batch, samples);
  for (MeasuredMetric& metric : layer.metrics) metric.add(batch);
}

void LayerMetrics::add(const MetricAddresses& outputs, int64_t samples) {
  for (size_t i = 0; i < outputs.predictions.size(); ++i)
    if (outputs.predictions[i]) give(layers_[i], batch_of(layers_[i], outputs, i), static_cast<uint64_t>(samples));
}

void LayerMetrics::hold(const MetricAddresses& outputs, int64_t samples) {
  for (size_t i = 0; i < outputs.predictions.size(); ++i) {
    if (!outputs.predictions[i]) continue;
    const hx_metric_batch batch = batch_of(layers_[i], outputs, i);
    if (held_.size() == held_count_) held_.emplace_back();
    HeldRows& rows = held_[held_count_++];
    rows.layer = i;
    rows.rows = batch.rows;
    rows.samples = static_cast<uint64_t>(samples);
    const uint64_t numbers = batch.rows * batch.outputs;
    rows.predictions.assign(batch.predictions, batch.predictions + numbers);
    if (batch.labels)
      rows.labels.assign(batch.labels, batch.labels + batch.rows);
    else
      rows.targets.assign(batch.targets, batch.targets + numbers);
  }
}

void LayerMetrics::commit() {
  for (size_t i = 0; i < held_count_; ++i) {
    const HeldRows& rows = held_[i];
    Layer& layer = layers_[rows.layer];
    hx_metric_batch batch = empty_batch(layer);
    batch.rows = rows.rows;
    batch.predictions = rows.predictions.data();
    if (layer.what.classes)
      batch.labels = rows.labels.data();
    else
      batch.targets = rows.targets.data();
    give(layer, batch, rows.samples);
  }
  held_count_ = 0;
  for (Layer& layer : layers_)
    if (layer.last) layer.last->end_step();
}

void LayerMetrics::take_counting_rows(Layer& layer, const float* predictions, const int32_t* labels, int64_t rows) {
  const MetricInputs& what = layer.what;
  layer.predictions.clear();
  layer.labels.clear();
  for (int64_t row = 0; row < rows; ++row) {
    if (what.shifts && (row + 1) % what.sequence == 0) continue;
    const int32_t label = labels[row + what.shifts];
    if (what.ignored && label == *what.ignored) continue;
    layer.labels.push_back(label);
    layer.predictions.insert(layer.predictions.end(), predictions + row * what.outputs,
                             predictions + (row + 1) * what.outputs);
  }
}

void LayerMetrics::reset() {
  saved_.reset();
  for (Layer& layer : layers_) {
    layer.rows = 0;
    for (MeasuredMetric& metric : layer.metrics) metric.reset();
  }
}

std::vector<LayerFigures> LayerMetrics::figures() {
  std::vector<LayerFigures> result;
  for (Layer& layer : layers_) {
    LayerFigures& f = result.emplace_back(LayerFigures{layer.name, layer.what.classes, {}, {}, layer.rows});
    for (MeasuredMetric& metric : layer.metrics) {
      for (Figure& figure : metric.figures())
        if (!f.find(figure.name)) f.figures.push_back(std::move(figure));
      if (MetricTable table = metric.table(); table.side > 0) f.table = std::move(table);
    }
  }
  return result;
}

}  // namespace harmonics::engine
