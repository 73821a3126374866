#include "engine/checkpoint/record_state.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/checkpoint/state_fields.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

const std::string kWindow = "run/window/", kCurve = "run/curve", kTable = "run/table/", kMetric = "run/metric/",
                  kJudged = "run/judged/";

HTensor tensor_of(const void* bytes, DType type, const Shape& shape) {
  const size_t size = TensorType{type, shape}.bytes();
  auto storage = std::make_shared<Storage>(size);
  if (size > 0) std::memcpy(storage->data(), bytes, size);  // an empty vector's data() may be null
  return make_value({type, shape}, std::move(storage));
}

HTensor tensor_of(const std::vector<double>& numbers, int64_t rows) {
  return tensor_of(numbers.data(), DType::F64, Shape{rows, static_cast<int64_t>(numbers.size()) / rows});
}

HTensor taken(TensorFile& file, const std::string& name) {
  const auto at = file.tensors.find(name);
  if (at == file.tensors.end()) throw std::runtime_error(fmt::format("tensor '{}' is missing", name));
  HTensor tensor = std::move(at->second);
  file.tensors.erase(at);
  return tensor;
}

template <typename T>
std::vector<T> take_array(TensorFile& file, const std::string& name, DType dtype, const Shape& shape) {
  const HTensor tensor = taken(file, name);
  const TensorType type = type_of(tensor);
  if (type != TensorType{dtype, shape}) throw std::runtime_error(fmt::format("'{}' is {}", name, type.str()));
  const auto* from = static_cast<const T*>(static_cast<const void*>(tensor.bytes()));
  return {from, from + shape.count()};
}

// Returns the numbers row by row. Throws if the number of rows differs.
std::vector<double> take_numbers(TensorFile& file, const std::string& name, int64_t rows) {
  const HTensor tensor = taken(file, name);
  const TensorType type = type_of(tensor);
  if (type.dtype != DType::F64 || type.shape.rank() != 2 || type.shape[0] != rows)
    throw std::runtime_error(fmt::format("'{}' is {}", name, type.str()));
  std::vector<double> numbers(static_cast<size_t>(type.shape.count()));
  if (!numbers.empty()) std::memcpy(numbers.data(), tensor.bytes(), numbers.size() * sizeof(double));
  return numbers;
}

// ---- epochs ----

std::string table_name(const EpochReport& e, const LayerFigures& layer) {
  return fmt::format("{}{}/{}", kTable, e.epoch, layer.layer);
}

json::value json_of(const EpochReport& e, const Evaluation& v, TensorFile& file) {
  json::array layers;
  for (const LayerFigures& layer : v.layers) {
    json::array figures;
    for (const Figure& f : layer.figures) figures.push_back(json::array{f.name, exact(f.value)});
    layers.push_back(json::object{{"layer", layer.layer},
                                  {"classes", layer.classes},
                                  {"rows", static_cast<int64_t>(layer.rows)},
                                  {"side", layer.table.side},
                                  {"figures", figures}});
    if (layer.table.side > 0) file.tensors[table_name(e, layer)] = tensor_of(layer.table.cells, layer.table.side);
  }
  json::object o{{"samples", v.samples},
                 {"loss", exact(v.loss)},
                 {"accuracy", exact(v.accuracy)},
                 {"seconds", exact(v.seconds)},
                 {"layers", layers}};
  if (!v.counts) o["counts"] = false;
  if (v.left_over.empty()) return o;
  json::array left;
  for (const LeftOver& l : v.left_over)
    left.push_back(
        json::object{{"producer", l.producer}, {"samples", static_cast<int64_t>(l.samples)}, {"text", l.text}});
  o["left_over"] = left;
  return o;
}

json::value json_of(const EpochReport& e, TensorFile& file) {
  return json::object{{"epoch", e.epoch},
                      {"steps", e.steps},
                      {"samples", e.samples},
                      {"seconds", exact(e.seconds)},
                      {"loss", exact(e.loss)},
                      {"accuracy", exact(e.accuracy)},
                      {"learning_rate", exact(e.learning_rate)},
                      {"step", e.step},
                      {"accuracy_name", e.accuracy_name},
                      {"figures", exact(e.figures)},
                      {"validation", e.validation ? json_of(e, *e.validation, file) : json::value(nullptr)}};
}

LayerFigures take_layer(const Fields& f, const EpochReport& e, TensorFile& file) {
  LayerFigures layer{f.text("layer"), f.yes("classes"), {}, {}, static_cast<uint64_t>(f.count("rows"))};
  for (const json::value& figure : f.list("figures")) {
    const json::array& pair = figure.as_array();
    layer.figures.push_back({std::string(pair.at(0).as_string()), exact_number(pair.at(1).as_string(), "figures")});
  }
  if (const int64_t side = f.count("side"); side > 0) {
    layer.table.cells = take_numbers(file, table_name(e, layer), side);
    if (layer.table.cells.size() / static_cast<size_t>(side) != static_cast<size_t>(side))
      throw std::runtime_error(fmt::format("'{}' is not square", table_name(e, layer)));
    layer.table.side = static_cast<uint32_t>(side);
  }
  return layer;
}

EpochReport take_epoch(const json::value& value, int64_t version, TensorFile& file) {
  const Fields f(value);
  EpochReport e{};
  e.epoch = f.count("epoch");
  e.steps = f.count("steps");
  e.samples = f.count("samples");
  e.seconds = f.number("seconds");
  e.loss = f.number("loss");
  e.accuracy = f.number("accuracy");
  e.learning_rate = f.number("learning_rate");
  if (version < 2) return e;
  e.step = f.count("step");
  e.accuracy_name = f.text("accuracy_name");
  e.figures = f.object("figures").numbers();
  if (f.at("validation").is_null()) return e;
  const Fields v = f.object("validation");
  e.validation = Evaluation{v.count("samples"), v.number("loss"), v.number("accuracy"), v.number("seconds"), {}, {}};
  for (const json::value& layer : v.list("layers")) e.validation->layers.push_back(take_layer(Fields(layer), e, file));
  if (v.all().contains("counts")) e.validation->counts = v.yes("counts");
  if (!v.all().contains("left_over")) return e;
  for (const json::value& item : v.list("left_over")) {
    const Fields left(item);
    e.validation->left_over.push_back(
        {left.text("producer"), static_cast<uint64_t>(left.count("samples")), left.text("text")});
  }
  return e;
}

// Files without these counts contain every epoch.
void take_epoch_counts(const Fields& f, RecordState& r) {
  const auto kept = static_cast<int64_t>(r.by_epoch.size());
  r.closed_epochs = f.all().contains("closed_epochs") ? f.count("closed_epochs") : kept;
  r.epoch_stride = f.all().contains("epoch_stride") ? f.count("epoch_stride") : 1;
  constexpr int64_t kMost = int64_t{1} << 52;
  if (r.closed_epochs < kept || r.closed_epochs > kMost || r.epoch_stride < 1 ||
      r.epoch_stride > std::max<int64_t>(r.closed_epochs, 1))
    throw std::runtime_error(
        fmt::format("{} of {} epochs kept, at a stride of {}", kept, r.closed_epochs, r.epoch_stride));
}

// ---- metrics of the epoch ----

std::string metric_name(const LayerState& layer, size_t number) {
  return fmt::format("{}{}/{}", kMetric, layer.layer, number);
}

json::value json_of(const LayerState& layer, TensorFile& file) {
  json::array metrics;
  for (size_t i = 0; i < layer.metrics.size(); ++i) {
    const MetricState& m = layer.metrics[i];
    metrics.push_back(
        json::object{{"metric", m.metric}, {"kept", m.kept}, {"bytes", static_cast<int64_t>(m.bytes.size())}});
    if (!m.bytes.empty())
      file.tensors[metric_name(layer, i)] =
          tensor_of(m.bytes.data(), DType::U8, Shape{static_cast<int64_t>(m.bytes.size())});
  }
  return json::object{{"layer", layer.layer}, {"rows", static_cast<int64_t>(layer.rows)}, {"metrics", metrics}};
}

LayerState take_layer_state(const Fields& f, TensorFile& file) {
  LayerState layer{f.text("layer"), static_cast<uint64_t>(f.count("rows")), {}};
  for (const json::value& value : f.list("metrics")) {
    const Fields m(value);
    MetricState state{m.text("metric"), m.yes("kept"), {}};
    if (const int64_t bytes = m.count("bytes"); bytes > 0)
      state.bytes = take_array<std::byte>(file, metric_name(layer, layer.metrics.size()), DType::U8, Shape{bytes});
    layer.metrics.push_back(std::move(state));
  }
  return layer;
}

// ---- window metrics of layers ----

json::object json_of(const std::map<std::string, MetricWindowState>& windows, TensorFile& file) {
  json::object o;
  for (const auto& [layer, w] : windows) {
    const std::string name = kJudged + layer;
    const auto rows = static_cast<int64_t>(w.predictions.size() / w.outputs);
    o[layer] = json::object{{"outputs", static_cast<int64_t>(w.outputs)}, {"classes", w.targets.empty()}};
    if (w.samples.empty()) continue;
    std::vector<double> steps = w.samples;
    steps.insert(steps.end(), w.rows.begin(), w.rows.end());
    file.tensors[name + "/steps"] = tensor_of(steps, 2);
    if (rows == 0) continue;
    const Shape shape{rows, static_cast<int64_t>(w.outputs)};
    file.tensors[name + "/said"] = tensor_of(w.predictions.data(), DType::F32, shape);
    file.tensors[name + "/meant"] = w.targets.empty() ? tensor_of(w.labels.data(), DType::I32, Shape{rows})
                                                      : tensor_of(w.targets.data(), DType::F32, shape);
  }
  return o;
}

MetricWindowState take_judged(const Fields& f, const std::string& name, TensorFile& file) {
  constexpr double kRows = 0x1p40;
  MetricWindowState w;
  w.outputs = static_cast<uint64_t>(f.count("outputs"));
  const bool classes = f.yes("classes");
  if (w.outputs == 0) throw std::runtime_error(fmt::format("'{}' has no outputs", name));
  if (!file.tensors.count(name + "/steps")) return w;
  const std::vector<double> steps = take_numbers(file, name + "/steps", 2);
  double rows = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!(steps[i] >= 0 && steps[i] <= kRows) || steps[i] != std::floor(steps[i]))
      throw std::runtime_error(fmt::format("'{}' holds {}, which is not a count", name, steps[i]));
    if (i >= steps.size() / 2) rows += steps[i];
  }
  if (rows > kRows) throw std::runtime_error(fmt::format("'{}' is too long", name));
  const auto half = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  w.samples.assign(steps.begin(), half);
  w.rows.assign(half, steps.end());
  if (rows == 0) return w;
  const Shape shape{static_cast<int64_t>(rows), static_cast<int64_t>(w.outputs)};
  w.predictions = take_array<float>(file, name + "/said", DType::F32, shape);
  if (classes)
    w.labels = take_array<int32_t>(file, name + "/meant", DType::I32, Shape{static_cast<int64_t>(rows)});
  else
    w.targets = take_array<float>(file, name + "/meant", DType::F32, shape);
  return w;
}

// ---- windows and curve ----

json::object json_of(const std::map<std::string, WindowState>& windows, TensorFile& file) {
  json::object o;
  for (const auto& [name, w] : windows) {
    o[name] = w.next;
    const bool all_count = w.ages.empty() && std::all_of(w.steps.begin(), w.steps.end(), [](const StepSums& s) {
                             return s.weight == s.samples && s.active == s.samples;
                           });
    std::vector<double> rows;
    for (const auto column : {&StepSums::sum, &StepSums::weight, &StepSums::active, &StepSums::samples}) {
      if (all_count && column == &StepSums::active) break;
      for (const StepSums& s : w.steps) rows.push_back(s.*column);
    }
    rows.insert(rows.end(), w.ages.begin(), w.ages.end());
    file.tensors[kWindow + name] = tensor_of(rows, w.ages.empty() ? (all_count ? 2 : 4) : 5);
  }
  return o;
}

WindowState take_window(const Fields& f, const std::string& name, TensorFile& file) {
  WindowState w;
  w.next = static_cast<size_t>(f.count(name));
  const auto kept = file.tensors.find(kWindow + name);
  const int64_t height = kept == file.tensors.end() ? 2 : kept->second.shape()[0];
  const bool all_count = height != 4 && height != 5;
  const std::vector<double> rows = take_numbers(file, kWindow + name, all_count ? 2 : height);
  const size_t n = rows.size() / static_cast<size_t>(all_count ? 2 : height);
  for (size_t i = 0; i < n; ++i) {
    const double weight = rows[n + i];
    w.steps.push_back(all_count ? StepSums{rows[i], weight, weight, weight}
                                : StepSums{rows[i], weight, rows[2 * n + i], rows[3 * n + i]});
  }
  constexpr double kOldest = 9007199254740992.0;  // up to which an f64 counts exactly
  for (size_t i = 0; i < n && height == 5; ++i) {
    const double age = rows[4 * n + i];
    if (!(age >= 1 && age <= kOldest) || age != std::floor(age))
      throw std::runtime_error(fmt::format("the window of '{}' has a step {} steps ago", name, age));
    w.ages.push_back(static_cast<int64_t>(age));
  }
  constexpr size_t kSamples = size_t{1} << 24;  // limit of a test-then-train window
  if (n > (name.starts_with("window.") ? kSamples : WindowMean::kSize) || w.next >= WindowMean::kSize)
    throw std::runtime_error(fmt::format("the window of '{}' is too long", name));
  return w;
}

json::object json_of(const CurveState& curve, TensorFile& file) {
  std::vector<double> points[4];
  for (const CurvePoint& p : curve.points) {
    points[0].push_back(static_cast<double>(p.step));
    points[1].push_back(p.seconds);
    points[2].push_back(p.loss);
    points[3].push_back(p.accuracy);
  }
  for (int i = 1; i < 4; ++i) points[0].insert(points[0].end(), points[i].begin(), points[i].end());
  file.tensors[kCurve] = tensor_of(points[0], 4);
  return {{"stride", curve.stride},
          {"pending", curve.pending},
          {"judged", curve.judged},
          {"loss", exact(curve.sum_loss)},
          {"accuracy", exact(curve.sum_accuracy)}};
}

CurveState take_curve(const Fields& f, TensorFile& file) {
  CurveState c;
  c.stride = f.count("stride");
  c.pending = f.count("pending");
  if (c.stride == 0 || c.pending >= c.stride)
    throw std::runtime_error(fmt::format("the curve has {} of {} steps pending", c.pending, c.stride));
  c.sum_loss = f.number("loss");
  c.judged = f.all().contains("judged") ? f.count("judged") : c.pending;
  if (c.judged > c.pending)
    throw std::runtime_error(fmt::format("the curve has {} of {} steps judged", c.judged, c.pending));
  c.sum_accuracy = f.number("accuracy");
  const std::vector<double> rows = take_numbers(file, kCurve, 4);
  const size_t n = rows.size() / 4;
  if (n >= Curve::kPoints) throw std::runtime_error(fmt::format("the curve has {} points", n));
  for (size_t i = 0; i < n; ++i) {
    if (!(rows[i] >= 0 && rows[i] < 0x1p62))
      throw std::runtime_error(fmt::format("the curve has a point at step {}", rows[i]));
    c.points.push_back({static_cast<int64_t>(rows[i]), rows[n + i], rows[2 * n + i], rows[3 * n + i]});
  }
  return c;
}

}  // namespace

json::object json_of(const RecordState& r, TensorFile& file) {
  json::array epochs, judged, parts, figures;
  double loss = 0;
  for (const auto& [key, part] : r.epoch_loss) {
    parts.push_back(json::array{key, exact(part.sum), exact(part.weight), exact(part.active)});
    loss += StepSums{part.sum, part.weight, part.active, r.epoch_measured}.mean() * r.epoch_measured;
  }
  for (const auto& [name, figure] : r.epoch_figures)
    figures.push_back(json::array{name, exact(figure.sum), exact(figure.weight)});
  for (const EpochReport& e : r.by_epoch) epochs.push_back(json_of(e, file));
  for (const LayerState& layer : r.measured_layers) judged.push_back(json_of(layer, file));
  return {{"epoch_steps", r.epoch_steps},
          {"epoch_samples", r.epoch_samples},
          {"epoch_loss", exact(loss)},
          {"epoch_parts", parts},
          {"epoch_figures", figures},
          {"epoch_measured", exact(r.epoch_measured)},
          {"epoch_correct", exact(r.epoch_correct)},
          {"epoch_judged", exact(r.epoch_judged)},
          {"epoch_start", exact(r.epoch_start)},
          {"aside", exact(r.aside)},
          {"accuracy_metric", r.accuracy_metric},
          {"windows", json_of(r.windows, file)},
          {"held", exact(r.held)},
          {"epochs", epochs},
          {"closed_epochs", r.closed_epochs},
          {"epoch_stride", r.epoch_stride},
          {"judged", judged},
          {"judged_windows", json_of(r.judged_windows, file)},
          {"curve", json_of(r.curve, file)}};
}

RecordState take_record(const Fields& f, int64_t version, TensorFile& file) {
  RecordState r;
  r.epoch_steps = f.count("epoch_steps");
  r.epoch_samples = f.count("epoch_samples");
  r.epoch_measured = f.number("epoch_measured");
  if (!f.all().contains("epoch_parts"))
    r.epoch_loss[""] = {f.number("epoch_loss"), r.epoch_measured, r.epoch_measured, 0};
  else
    for (const json::value& value : f.list("epoch_parts")) {
      const json::array& part = value.as_array();
      const auto number = [&](size_t i) { return exact_number(part.at(i).as_string(), "epoch_parts"); };
      r.epoch_loss[std::string(part.at(0).as_string())] = {number(1), number(2), number(3), 0};
    }
  if (f.all().contains("epoch_figures"))
    for (const json::value& value : f.list("epoch_figures")) {
      const json::array& figure = value.as_array();
      const double sum = exact_number(figure.at(1).as_string(), "epoch_figures"),
                   weight = exact_number(figure.at(2).as_string(), "epoch_figures");
      r.epoch_figures[std::string(figure.at(0).as_string())] = {sum, weight, weight, weight};
    }
  r.epoch_correct = f.number("epoch_correct");
  r.epoch_judged = f.number("epoch_judged");
  r.epoch_start = f.number("epoch_start");
  r.accuracy_metric = f.text("accuracy_metric");
  const Fields windows = f.object("windows");
  for (const auto& [name, next] : windows.all())
    r.windows[std::string(name)] = take_window(windows, std::string(name), file);
  for (const json::value& e : f.list("epochs")) r.by_epoch.push_back(take_epoch(e, version, file));
  take_epoch_counts(f, r);
  r.curve = take_curve(f.object("curve"), file);
  if (version < 2) return r;
  r.aside = f.number("aside");
  r.held = f.object("held").numbers();
  for (const json::value& layer : f.list("judged")) r.measured_layers.push_back(take_layer_state(Fields(layer), file));
  if (!f.all().contains("judged_windows")) return r;
  const Fields judged = f.object("judged_windows");
  for (const auto& [layer, window] : judged.all())
    r.judged_windows[std::string(layer)] = take_judged(Fields(window), kJudged + std::string(layer), file);
  return r;
}

}  // namespace harmonics::engine
