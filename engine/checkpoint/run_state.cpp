#include "engine/checkpoint/run_state.hpp"

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/philox.hpp>

#include "engine/checkpoint/state_fields.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

constexpr int64_t kVersion = 2, kOldest = 1;  // 1: without figures, validation and accumulated metrics

LayerChanges changes_of(const Fields& f) {
  LayerChanges changes;
  if (!f.all().contains("changes")) return changes;
  const Fields all = f.object("changes");
  changes.of = all.text("of");
  for (const json::value& one : all.list("layers")) {
    const Fields change(one);
    LayerChange& to = changes.all.emplace_back();
    to.layer = change.text("layer");
    const Fields arguments = change.object("arguments");
    for (const auto& [name, value] : arguments.all())
      to.arguments.push_back({std::string(name), "", arguments.text(name)});
  }
  return changes;
}

json::object json_of(const LayerChanges& changes) {
  json::array layers;
  for (const LayerChange& change : changes.all) {
    json::object arguments;
    for (const LayerChange::Argument& a : change.arguments) arguments[a.name] = a.after;
    layers.push_back(json::object{{"layer", change.layer}, {"arguments", std::move(arguments)}});
  }
  return {{"of", changes.of}, {"layers", std::move(layers)}};
}

RunState state_of(const Fields& f, int64_t version, TensorFile& file) {
  RunState s;
  s.cycle = f.count("cycle");
  s.step = f.count("step");
  s.batches = f.count("batches");
  s.samples = f.count("samples");
  s.epoch = static_cast<uint64_t>(f.count("epoch"));
  s.index = static_cast<uint64_t>(f.count("index"));
  s.seconds = f.number("seconds");
  s.learning_rate = f.number("learning_rate");
  if (f.all().contains("learning_rate_set")) s.learning_rate_set = f.number("learning_rate_set");
  s.record = take_record(f.object("record"), version, file);
  s.not_resumable = f.text("not_resumable");
  const Fields streams = f.object("streams");
  for (const auto& [name, size] : streams.all()) s.streams[name] = static_cast<uint64_t>(streams.count(name));
  if (f.all().contains("live")) {
    const Fields live = f.object("live");
    for (const auto& [name, place] : live.all()) {
      const Fields of = live.object(std::string(name).c_str());
      s.live[name] = {static_cast<uint64_t>(of.count("index")), of.text("position"),
                      of.all().contains("type") ? of.text("type") : ""};
    }
  }
  s.reading = f.text("reading");
  s.graph = f.text("graph");
  s.identity = f.text("identity");
  s.changes = changes_of(f);
  s.seed = f.large("seed");
  s.training = f.text("training");
  s.device = f.text("device");
  s.batch = f.count("batch");
  s.accumulate = f.count("accumulate");
  if (f.all().contains("implementations")) {
    const Fields by = f.object("implementations");
    for (const auto& [functional, v] : by.all())
      s.implementations[functional] = by.text(std::string(functional).c_str());
  }
  if (f.all().contains("routes")) {
    const Fields by = f.object("routes");
    for (const auto& [what, v] : by.all()) s.routes[what] = by.text(std::string(what).c_str());
  }
  s.metrics = f.object("metrics").numbers();
  return s;
}

}  // namespace

std::string identity_of(const std::string& text) { return fmt::format("{:016x}", stream_of(text.data(), text.size())); }

std::string RunState::position() const { return fmt::format("epoch {}, sample {}", epoch + 1, index); }

void write_state(const RunState& s, TensorFile& file) {
  file.tensors.erase(file.tensors.lower_bound("run/"), file.tensors.lower_bound("run0"));  // those of an earlier state
  json::object streams, implementations, routes, live;
  for (const auto& [name, at] : s.live) {
    json::object o{{"index", at.index}, {"position", at.position}};
    if (!at.type.empty()) o["type"] = at.type;
    live[name] = std::move(o);
  }
  for (const auto& [functional, winner] : s.implementations) implementations[functional] = winner;
  for (const auto& [what, route] : s.routes) routes[what] = route;
  for (const auto& [name, size] : s.streams) streams[name] = size;
  json::object o{{"version", kVersion},
                 {"cycle", s.cycle},
                 {"step", s.step},
                 {"batches", s.batches},
                 {"samples", s.samples},
                 {"epoch", s.epoch},
                 {"index", s.index},
                 {"seconds", exact(s.seconds)},
                 {"learning_rate", exact(s.learning_rate)},
                 {"not_resumable", s.not_resumable},
                 {"streams", streams},
                 {"live", live},
                 {"reading", s.reading},
                 {"graph", s.graph},
                 {"identity", s.identity},
                 {"random", "philox4x32-10"},
                 {"seed", std::to_string(s.seed)},
                 {"training", s.training},
                 {"device", s.device},
                 {"batch", s.batch},
                 {"accumulate", s.accumulate},
                 {"implementations", implementations},
                 {"routes", routes},
                 {"metrics", exact(s.metrics)},
                 {"record", json_of(s.record, file)}};
  if (s.learning_rate_set) o["learning_rate_set"] = exact(*s.learning_rate_set);
  if (!s.changes.all.empty()) o["changes"] = json_of(s.changes);
  file.metadata[kRunStateKey] = json::serialize(o);
}

RunState take_state(TensorFile& file, const std::string& name) {
  const auto entry = file.metadata.find(kRunStateKey);
  if (entry == file.metadata.end())
    throw Error(ErrorKind::Weights, fmt::format("'{}' holds weights, but no run to resume", name), {},
                {"use --weights to load weights"});
  try {
    const json::value value = parse_json(entry->second);
    const Fields fields(value);
    const int64_t version = fields.count("version");
    if (version < kOldest || version > kVersion)
      throw Error(ErrorKind::Weights,
                  fmt::format("'{}' is a checkpoint of version {}, this program reads versions {} to {}", name, version,
                              kOldest, kVersion),
                  {}, {"use the program that wrote it, or a later one"});
    return state_of(fields, version, file);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(ErrorKind::Weights,
                fmt::format("'{}': the metadata '{}' is invalid: {}", name, kRunStateKey, e.what()));
  }
}

LayerChanges changes_in(const std::map<std::string, std::string>& metadata) {
  const auto entry = metadata.find(kRunStateKey);
  if (entry == metadata.end()) return {};
  try {
    const json::value value = parse_json(entry->second);
    return changes_of(Fields(value));
  } catch (const std::exception&) {
    return {};  // reported when the whole checkpoint is read
  }
}

}  // namespace harmonics::engine
