#include "engine/serving/json_text.hpp"

#include <cmath>
#include <cstring>
#include <set>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/functional.hpp>

#include "formats/utf8.hpp"
#include "engine/serving/predictor.hpp"

namespace harmonics::engine {

namespace json = boost::json;

namespace {

template <typename T>
json::value or_null(const std::optional<T>& v) {
  return v ? json::value(*v) : json::value(nullptr);
}

json::object json_of(const std::map<std::string, double>& values) {
  json::object o;
  for (const auto& [name, value] : values) o[name] = json_number(value);
  return o;
}

json::array json_of(const Shape& shape) {
  json::array a;
  for (int64_t d : shape) a.push_back(d);
  return a;
}

json::object json_of(const StreamStatus& s) {
  const auto of_live = [&](auto member) {
    return s.of_live ? json::value((*s.of_live).*member) : json::value(nullptr);
  };
  using Live = StreamStatus::Live;
  return {{"name", s.name},
          {"live", s.live},
          {"state", s.state},
          {"health", word(s.health)},
          {"samples", s.samples},
          {"bytes", s.bytes},
          {"rate", json_number(s.rate)},
          {"bytes_per_second", json_number(s.bytes_per_second)},
          {"queued_samples", of_live(&Live::queued_samples)},
          {"queued_bytes", of_live(&Live::queued_bytes)},
          {"window_bytes", of_live(&Live::window_bytes)},
          {"back_pressure", or_null(s.back_pressure())},
          {"lag_seconds", or_null(s.lag_seconds())},
          {"senders", of_live(&Live::senders)},
          {"connected", of_live(&Live::connected)},
          {"lost", of_live(&Live::lost)},
          {"duplicates", of_live(&Live::duplicates)},
          {"dropped", of_live(&Live::dropped)},
          {"unpaired", of_live(&Live::unpaired)},
          {"late", of_live(&Live::late)},
          {"filled", of_live(&Live::filled)},
          {"refused", of_live(&Live::refused)},
          {"resent", of_live(&Live::resent)},
          {"idle_seconds", of_live(&Live::idle_seconds)},
          {"last_error",
           s.of_live && !s.of_live->last_error.empty() ? json::value(s.of_live->last_error) : json::value(nullptr)}};
}

json::object json_of(const AnswerTimes::Report& r) {
  return {{"requests", r.requests},       {"samples", r.samples},
          {"refused", r.refused},         {"failed", r.failed},
          {"batches", r.batches},         {"queued", r.queued},
          {"queue_limit", r.queue_limit}, {"requests_per_second", json_number(r.requests_per_second)},
          {"p50_ms", or_null(r.p50_ms)},  {"p99_ms", or_null(r.p99_ms)}};
}

json::object json_of(const Port& port) {
  json::object o{{"name", port.name}, {"dtype", dtype_name(port.sample.dtype)}, {"shape", json_of(port.sample.shape)}};
  o["classes"] = port.classes > 0 ? json::value(port.classes) : json::value(nullptr);
  return o;
}

// Appends one element of a tensor with the fewest digits that restore the same value.
void append_number(std::string& to, DType dtype, const std::byte* at) {
  const auto as = [&]<typename T>(T) {
    T v;
    std::memcpy(&v, at, sizeof v);
    return v;
  };
  const auto real = [&](auto v) {
    if (std::isfinite(v))
      to += fmt::format("{}", v);
    else
      to += "null";
  };
  const auto whole = [&](auto v) { to += fmt::format("{}", v); };
  switch (dtype) {
    case DType::F32:
      return real(as(float{}));
    case DType::F64:
      return real(as(double{}));
    case DType::Bool:
      to += as(uint8_t{}) ? "true" : "false";
      return;
    case DType::U8:
      return whole(as(uint8_t{}));
    case DType::I8:
      return whole(as(int8_t{}));
    case DType::U16:
      return whole(as(uint16_t{}));
    case DType::I16:
      return whole(as(int16_t{}));
    case DType::U32:
      return whole(as(uint32_t{}));
    case DType::I32:
      return whole(as(int32_t{}));
    case DType::U64:
      return whole(as(uint64_t{}));
    case DType::I64:
      return whole(as(int64_t{}));
    default:
      return real(cast(view_of({dtype, {}}, const_cast<std::byte*>(at)), DType::F32).item<float>());
  }
}

void append_nested(std::string& to, DType dtype, const Shape& shape, uint32_t axis, const std::byte*& at) {
  if (axis == shape.rank()) {
    append_number(to, dtype, at);
    at += element_bytes(dtype);
    return;
  }
  to += '[';
  for (int64_t i = 0; i < shape[axis]; ++i) {
    if (i > 0) to += ',';
    append_nested(to, dtype, shape, axis + 1, at);
  }
  to += ']';
}

}  // namespace

std::string json_line(const json::object& o) { return plain_numbers(valid_json(json::serialize(o))); }

json::value json_number(double v) { return std::isfinite(v) ? json::value(v) : json::value(nullptr); }

json::object json_of(const WeightsVersion& version) { return {{"cycle", version.cycle + 1}, {"step", version.step}}; }

json::object json_of(const RunStatus& s, const Snapshot* newest, const AnswerTimes::Report* serving) {
  json::object o{{"version", 1},       {"graph", s.graph},   {"state", word(s.phase)}, {"cycle", s.cycle + 1},
                 {"cycles", s.cycles}, {"trains", s.trains}, {"epoch", s.epoch}};
  o["epochs"] = s.epochs > 0 ? json::value(s.epochs) : json::value(nullptr);
  o["step"] = s.step;
  o["samples"] = s.samples;
  o["seconds"] = s.seconds;
  o["samples_per_second"] = json_number(s.samples_per_second);
  o["steps_per_second"] = json_number(s.steps_per_second);
  o["fraction"] = s.fraction >= 0 ? json_number(s.fraction) : json::value(nullptr);
  const auto loss = s.metrics.find("loss");
  o["loss"] = loss != s.metrics.end() ? json_number(loss->second) : json::value(nullptr);
  o["metrics"] = json_of(s.metrics);
  o["window"] =
      s.window
          ? json::value{{"samples", s.window->samples}, {"of", s.window->of}, {"metrics", json_of(s.window->metrics)}}
          : json::value(nullptr);
  o["learning_rate"] = s.learning_rate ? json_number(*s.learning_rate) : json::value(nullptr);
  o["learning_rate_set"] = s.learning_rate_set;
  o["checkpoint"] = s.checkpoint ? json::value{{"path", s.checkpoint->path},
                                               {"step", s.checkpoint->step},
                                               {"seconds_ago", s.checkpoint->seconds_ago}}
                                 : json::value(nullptr);
  o["checkpointing"] = s.checkpointing;
  if (newest) {
    json::object snapshot = json_of(newest->version());
    snapshot["age_seconds"] = std::chrono::duration<double>(Snapshot::Clock::now() - newest->taken()).count();
    o["snapshot"] = std::move(snapshot);
  } else {
    o["snapshot"] = nullptr;
  }
  o["serving"] = serving ? json::value(json_of(*serving)) : json::value(nullptr);
  o["health"] = word(s.health);
  json::array streams;
  for (const StreamStatus& stream : s.streams) streams.push_back(json_of(stream));
  o["streams"] = std::move(streams);
  o["notes"] = s.notes;
  return o;
}

json::object json_of(const LayerChange& change) {
  json::array arguments;
  for (const LayerChange::Argument& a : change.arguments) {
    const auto text = [&a](const std::string& value) {
      const std::string& shown = value_or_standard(value, a);
      return shown.empty() ? json::value(nullptr) : json::value(shown);
    };
    arguments.push_back(json::object{{"name", a.name}, {"before", text(a.before)}, {"after", text(a.after)}});
  }
  return {{"layer", change.layer}, {"arguments", std::move(arguments)}};
}

json::object json_of(const RunHistory& history) {
  json::array names, points;
  for (const std::string& name : history.names()) names.emplace_back(name);
  for (size_t i = 0; i < history.size(); ++i) {
    const RunHistory::Point& p = history.point(i);
    json::array values;
    for (size_t k = 0; k < history.names().size(); ++k) values.push_back(json_number(history.values(i)[k]));
    points.push_back({{"step", p.step},
                      {"seconds", p.seconds},
                      {"samples_per_second", json_number(p.samples_per_second)},
                      {"learning_rate", p.learning_rate},
                      {"values", std::move(values)}});
  }
  return {{"version", 1}, {"names", std::move(names)}, {"points", std::move(points)}};
}

json::object json_of(const LogLine& line) {
  return {{"number", line.number}, {"seconds", line.seconds}, {"level", line.level}, {"text", line.text}};
}

json::object json_of(const std::vector<LogLine>& lines) {
  json::array a;
  for (const LogLine& line : lines) a.push_back(json_of(line));
  return {{"version", 1}, {"lines", std::move(a)}};
}

json::object json_of(const ModelPorts& ports) {
  json::array inputs, outputs;
  for (const Port& p : ports.inputs) inputs.push_back(json_of(p));
  for (const Port& p : ports.outputs) outputs.push_back(json_of(p));
  return {{"version", 1},
          {"graph", ports.graph},
          {"cycle", ports.cycle + 1},
          {"inputs", std::move(inputs)},
          {"outputs", std::move(outputs)},
          {"most_samples", Predictor::kMostSamples}};
}

std::string prediction_text(const Prediction& prediction, const ModelPorts& ports) {
  std::string text = R"({"outputs":{)";
  for (size_t p = 0; p < ports.outputs.size(); ++p) {
    Shape batched{static_cast<int64_t>(prediction.samples)};
    for (int64_t d : ports.outputs[p].sample.shape) batched.push_back(d);
    const std::byte* at = prediction.outputs[p].data();
    text += (p > 0 ? "," : "") + json::serialize(json::string(ports.outputs[p].name)) + ":";
    append_nested(text, ports.outputs[p].sample.dtype, batched, 0, at);
  }
  const std::string bad = prediction.not_finite > 0 ? fmt::format(",\"not_finite\":{}", prediction.not_finite) : "";
  return text + fmt::format("}},\"samples\":{}{},\"version\":{{\"cycle\":{},\"step\":{}}}}}\n", prediction.samples, bad,
                            prediction.version.cycle + 1, prediction.version.step);
}

json::object graph_json(const Graph& graph, const std::map<int, StreamType>& streams, const Widths& widths,
                        const ParameterStore& weights) {
  const auto name_of = [&](int n) -> const std::string& { return graph.nodes[static_cast<size_t>(n)].name; };
  std::map<int, std::set<std::string>> counted;  // tensors counted, by layer: parallel arrows share names
  std::map<int, int64_t> learned;
  json::array nodes, edges;
  for (const GraphEdge& e : graph.edges) {
    json::array calls;
    for (const BoundCall& c : e.calls) calls.emplace_back(c.item->name);
    for (const auto& [name, t] : weights.all())
      if (t.role == Role::weight && name.starts_with(e.path + ".") && counted[e.target].insert(name).second)
        learned[e.target] += t.type.shape.count();
    edges.push_back({{"from", name_of(e.source)},
                     {"to", name_of(e.target)},
                     {"kind", e.is_stream ? "stream" : "arrow"},
                     {"calls", std::move(calls)},
                     {"cycle", e.cycle < 0 ? json::value(nullptr) : json::value(e.cycle + 1)}});
  }
  for (const GraphTap& t : graph.taps) {
    json::array calls;
    for (const BoundCall& c : t.losses) calls.emplace_back(c.item->name);
    edges.push_back({{"from", name_of(t.target)},
                     {"to", name_of(t.layer)},
                     {"kind", "tap"},
                     {"calls", std::move(calls)},
                     {"cycle", t.cycle < 0 ? json::value(nullptr) : json::value(t.cycle + 1)}});
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& node = graph.nodes[i];
    const int n = static_cast<int>(i);
    json::value shape(nullptr);
    if (const auto at = streams.find(n); at != streams.end()) shape = json_of(at->second.sample);
    if (const auto at = widths.of.find(n); at != widths.of.end()) shape = json_of(at->second.shape);
    const char* kind = node.kind == DeclarationKind::Producer   ? "producer"
                       : node.kind == DeclarationKind::Consumer ? "consumer"
                                                                : "layer";
    nodes.push_back({{"name", node.name}, {"kind", kind}, {"shape", std::move(shape)}, {"parameters", learned[n]}});
  }
  return {{"version", 1}, {"graph", graph.name}, {"nodes", std::move(nodes)}, {"edges", std::move(edges)}};
}

json::object error_json(const Error& error) {
  std::string note;
  for (const std::string& text : error.notes()) note += (note.empty() ? "" : "; ") + text;
  return {{"error", error.what()}, {"note", note}};
}

}  // namespace harmonics::engine
