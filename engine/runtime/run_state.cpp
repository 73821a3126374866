#include "engine/runtime/run_state.hpp"

#include <charconv>
#include <cmath>
#include <cstring>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/philox.hpp>

namespace harmonics {

namespace {

namespace json = boost::json;

constexpr const char* kKey = "harmonics.run";
constexpr int64_t kVersion = 1;
const std::string kWindow = "run/window/", kCurve = "run/curve";

// As text: the library's numbers do not all come back to the bit, and JSON has no infinity.
std::string exact(double v) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, v).ptr};
}

// A field of a JSON object that must be there, of its kind and in its range.
class Fields {
 public:
  explicit Fields(const json::value& value) : object_(value.as_object()) {}

  const json::value& at(const char* key) const {
    const json::value* v = object_.if_contains(key);
    if (!v) throw std::runtime_error(fmt::format("'{}' is missing", key));
    return *v;
  }
  int64_t count(const char* key) const {
    const json::value& v = at(key);
    if (!v.is_int64() || v.get_int64() < 0) throw std::runtime_error(fmt::format("'{}' is no count", key));
    return v.get_int64();
  }
  std::string text(const char* key) const {
    const json::value& v = at(key);
    if (!v.is_string()) throw std::runtime_error(fmt::format("'{}' is no text", key));
    return std::string(v.get_string());
  }
  uint64_t large(const char* key) const {
    const std::string s = text(key);
    uint64_t v = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (error != std::errc() || end != s.data() + s.size()) throw std::runtime_error(fmt::format("'{}' is no count", key));
    return v;
  }
  double number(const char* key) const { return exact_number(text(key), key); }
  Fields object(const char* key) const { return Fields(at(key)); }
  const json::object& all() const { return object_; }

  static double exact_number(const std::string& text, std::string_view key) {
    double v = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
    if (error != std::errc() || end != text.data() + text.size()) throw std::runtime_error(fmt::format("'{}' is no number: '{}'", key, text));
    return v;
  }

 private:
  const json::object& object_;
};

HTensor tensor_of(const std::vector<double>& numbers, int64_t rows) {
  const int64_t columns = static_cast<int64_t>(numbers.size()) / rows;
  auto storage = std::make_shared<Storage>(numbers.size() * sizeof(double));
  std::memcpy(storage->data(), numbers.data(), numbers.size() * sizeof(double));
  return make_value({DType::F64, Shape{rows, columns}}, std::move(storage));
}

// Row by row; throws when there are not that many rows.
std::vector<double> numbers_of(const HTensor& tensor, int64_t rows, const std::string& name) {
  const TensorType type = type_of(tensor);
  if (type.dtype != DType::F64 || type.shape.rank() != 2 || type.shape[0] != rows) throw std::runtime_error(fmt::format("'{}' is {}", name, type.str()));
  std::vector<double> numbers(static_cast<size_t>(type.shape.count()));
  std::memcpy(numbers.data(), tensor.bytes(), numbers.size() * sizeof(double));
  return numbers;
}

json::value json_of(const EpochReport& e) {
  return json::object{{"epoch", e.epoch}, {"steps", e.steps}, {"samples", e.samples}, {"seconds", exact(e.seconds)},
                      {"loss", exact(e.loss)}, {"accuracy", exact(e.accuracy)}, {"learning_rate", exact(e.learning_rate)}};
}

EpochReport epoch_of(const json::value& value) {
  const Fields f(value);
  EpochReport e{};
  e.epoch = f.count("epoch");
  e.steps = f.count("steps");
  e.samples = f.count("samples");
  e.seconds = f.number("seconds");
  e.loss = f.number("loss");
  e.accuracy = f.number("accuracy");
  e.learning_rate = f.number("learning_rate");
  return e;
}

json::object json_of(const RecordState& r, TensorFile& file) {
  json::object windows;
  for (const auto& [name, w] : r.windows) {
    windows[name] = w.next;
    std::vector<double> rows = w.sums;
    rows.insert(rows.end(), w.weights.begin(), w.weights.end());
    file.tensors[kWindow + name] = tensor_of(rows, 2);
  }
  std::vector<double> points[4];
  for (const CurvePoint& p : r.curve.points) {
    points[0].push_back(static_cast<double>(p.step));
    points[1].push_back(p.seconds);
    points[2].push_back(p.loss);
    points[3].push_back(p.accuracy);
  }
  for (int i = 1; i < 4; ++i) points[0].insert(points[0].end(), points[i].begin(), points[i].end());
  file.tensors[kCurve] = tensor_of(points[0], 4);
  json::array epochs;
  for (const EpochReport& e : r.by_epoch) epochs.push_back(json_of(e));
  return {{"epoch_steps", r.epoch_steps}, {"epoch_samples", r.epoch_samples}, {"epoch_loss", exact(r.epoch_loss)}, {"epoch_measured", exact(r.epoch_measured)},
          {"epoch_correct", exact(r.epoch_correct)}, {"epoch_judged", exact(r.epoch_judged)}, {"epoch_start", exact(r.epoch_start)},
          {"accuracy_metric", r.accuracy_metric}, {"windows", windows}, {"epochs", epochs},
          {"curve", json::object{{"stride", r.curve.stride}, {"pending", r.curve.pending}, {"loss", exact(r.curve.sum_loss)}, {"accuracy", exact(r.curve.sum_accuracy)}}}};
}

HTensor taken(TensorFile& file, const std::string& name) {
  const auto at = file.tensors.find(name);
  if (at == file.tensors.end()) throw std::runtime_error(fmt::format("tensor '{}' is missing", name));
  HTensor tensor = std::move(at->second);
  file.tensors.erase(at);
  return tensor;
}

CurveState take_curve(const Fields& f, TensorFile& file) {
  CurveState c;
  c.stride = f.count("stride");
  c.pending = f.count("pending");
  if (c.stride == 0 || c.pending >= c.stride) throw std::runtime_error(fmt::format("the curve has {} of {} steps pending", c.pending, c.stride));
  c.sum_loss = f.number("loss");
  c.sum_accuracy = f.number("accuracy");
  const std::vector<double> rows = numbers_of(taken(file, kCurve), 4, kCurve);
  const size_t n = rows.size() / 4;
  if (n >= Curve::kPoints) throw std::runtime_error(fmt::format("the curve has {} points", n));
  for (size_t i = 0; i < n; ++i) {
    if (!(rows[i] >= 0 && rows[i] < 0x1p62)) throw std::runtime_error(fmt::format("the curve has a point at step {}", rows[i]));
    c.points.push_back({static_cast<int64_t>(rows[i]), rows[n + i], rows[2 * n + i], rows[3 * n + i]});
  }
  return c;
}

RecordState take_record(const Fields& f, TensorFile& file) {
  RecordState r;
  r.epoch_steps = f.count("epoch_steps");
  r.epoch_samples = f.count("epoch_samples");
  r.epoch_loss = f.number("epoch_loss");
  r.epoch_measured = f.number("epoch_measured");
  r.epoch_correct = f.number("epoch_correct");
  r.epoch_judged = f.number("epoch_judged");
  r.epoch_start = f.number("epoch_start");
  r.accuracy_metric = f.text("accuracy_metric");
  const Fields windows = f.object("windows");
  for (const auto& [name, next] : windows.all()) {
    WindowState w;
    w.next = static_cast<size_t>(windows.count(std::string(name).c_str()));
    const std::vector<double> rows = numbers_of(taken(file, kWindow + std::string(name)), 2, name);
    const auto half = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
    w.sums.assign(rows.begin(), half);
    w.weights.assign(half, rows.end());
    if (w.sums.size() > WindowMean::kSize || w.next >= WindowMean::kSize) throw std::runtime_error(fmt::format("the window of '{}' is too long", std::string(name)));
    r.windows[name] = std::move(w);
  }
  for (const json::value& e : f.at("epochs").as_array()) r.by_epoch.push_back(epoch_of(e));
  r.curve = take_curve(f.object("curve"), file);
  return r;
}

RunState state_of(const json::value& value, TensorFile& file) {
  const Fields f(value);
  RunState s;
  s.cycle = f.count("cycle");
  s.step = f.count("step");
  s.batches = f.count("batches");
  s.samples = f.count("samples");
  s.epoch = static_cast<uint64_t>(f.count("epoch"));
  s.index = static_cast<uint64_t>(f.count("index"));
  s.seconds = f.number("seconds");
  s.learning_rate = f.number("learning_rate");
  s.record = take_record(f.object("record"), file);
  s.not_resumable = f.text("not_resumable");
  const Fields streams = f.object("streams");
  for (const auto& [name, size] : streams.all()) s.streams[name] = static_cast<uint64_t>(streams.count(std::string(name).c_str()));
  s.reading = f.text("reading");
  s.graph = f.text("graph");
  s.identity = f.text("identity");
  s.seed = f.large("seed");
  s.training = f.text("training");
  s.device = f.text("device");
  s.batch = f.count("batch");
  s.accumulate = f.count("accumulate");
  const Fields metrics = f.object("metrics");
  for (const auto& [name, v] : metrics.all()) s.metrics[name] = metrics.number(std::string(name).c_str());
  return s;
}

}  // namespace

std::string identity_of(const std::string& text) { return fmt::format("{:016x}", stream_of(text.data(), text.size())); }

std::string RunState::position() const { return fmt::format("epoch {}, sample {}", epoch + 1, index); }

void write_state(const RunState& s, TensorFile& file) {
  json::object streams, metrics;
  for (const auto& [name, size] : s.streams) streams[name] = size;
  for (const auto& [name, v] : s.metrics) metrics[name] = exact(v);
  const json::object o{{"version", kVersion}, {"cycle", s.cycle}, {"step", s.step}, {"batches", s.batches}, {"samples", s.samples},
                       {"epoch", s.epoch}, {"index", s.index}, {"seconds", exact(s.seconds)}, {"learning_rate", exact(s.learning_rate)},
                       {"not_resumable", s.not_resumable}, {"streams", streams}, {"reading", s.reading}, {"graph", s.graph}, {"identity", s.identity},
                       {"random", "philox4x32-10"}, {"seed", std::to_string(s.seed)}, {"training", s.training}, {"device", s.device}, {"batch", s.batch},
                       {"accumulate", s.accumulate}, {"metrics", metrics}, {"record", json_of(s.record, file)}};
  file.metadata[kKey] = json::serialize(o);
}

RunState take_state(TensorFile& file, const std::string& name) {
  const auto entry = file.metadata.find(kKey);
  if (entry == file.metadata.end())
    throw Error(ErrorKind::Weights, fmt::format("'{}' holds weights, but no run that could go on", name), {}, {"weights are taken with --weights"});
  try {
    const json::value value = json::parse(entry->second);
    if (const int64_t version = Fields(value).count("version"); version != kVersion)
      throw Error(ErrorKind::Weights, fmt::format("'{}' is a checkpoint of version {}, this program reads version {}", name, version, kVersion), {}, {"use the program that wrote it, or a later one"});
    return state_of(value, file);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(ErrorKind::Weights, fmt::format("'{}': the metadata '{}' cannot be understood: {}", name, kKey, e.what()));
  }
}

}  // namespace harmonics
