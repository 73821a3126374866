#include "engine/runtime/recorded_streams.hpp"

#include <boost/json.hpp>
#include <fmt/core.h>

namespace harmonics {

namespace json = boost::json;

std::map<std::string, std::string> record_streams(const Graph& graph, const std::map<int, StreamType>& types) {
  json::object streams;
  for (const auto& [n, t] : types) {
    json::object o;
    o["dtype"] = std::string(dtype_name(t.dtype));
    o["sample"] = json::value_from(t.sample.vector());
    o["positions"] = t.positions;
    o["classes"] = t.classes;
    if (t.dtype == DType::U8) o["scale"] = 1.0 / 255;
    if (!t.symbols.empty()) o["symbols"] = json::value_from(t.symbols);
    streams[graph.nodes[static_cast<size_t>(n)].name] = std::move(o);
  }
  return {{"harmonics.format", "1"}, {"harmonics.name", graph.name}, {"harmonics.graph", graph.source ? graph.source->text() : ""}, {"harmonics.streams", json::serialize(streams)}};
}

std::map<int, StreamType> read_recorded_streams(const Graph& graph, const std::map<std::string, std::string>& metadata, const std::string& file) {
  std::map<int, StreamType> result;
  const auto it = metadata.find("harmonics.streams");
  if (it == metadata.end()) return result;
  try {
    const json::value value = json::parse(it->second);
    for (const auto& [name, v] : value.as_object()) {
      const int n = graph.find(std::string_view(name.data(), name.size()));
      if (n < 0 || graph.nodes[static_cast<size_t>(n)].kind != DeclarationKind::Producer) continue;
      const json::object& o = v.as_object();
      StreamType t;
      t.dtype = dtype_named(std::string_view(o.at("dtype").as_string()));
      t.sample = Shape(json::value_to<std::vector<int64_t>>(o.at("sample")));
      t.positions = static_cast<uint32_t>(o.at("positions").to_number<int64_t>());
      t.classes = o.at("classes").to_number<int64_t>();
      if (const json::value* symbols = o.if_contains("symbols")) t.symbols = json::value_to<std::vector<std::string>>(*symbols);
      from_c(to_c({t.dtype, t.sample}));
      if (t.positions > t.sample.rank()) throw Error(ErrorKind::Weights, "more positions than dimensions");
      result[n] = std::move(t);
    }
  } catch (const std::exception& e) {
    throw Error(ErrorKind::Weights, fmt::format("{}: the metadata 'harmonics.streams' cannot be understood: {}", file, e.what()));
  }
  return result;
}

void check_recorded(const Graph& graph, const std::map<int, StreamType>& recorded, const std::map<int, StreamType>& bound, const std::string& file) {
  for (const auto& [n, was] : recorded) {
    const auto it = bound.find(n);
    if (it == bound.end()) continue;
    const StreamType& now = it->second;
    const std::string& name = graph.nodes[static_cast<size_t>(n)].name;
    if (!was.symbols.empty() && !now.symbols.empty() && was.symbols != now.symbols)
      throw Error(ErrorKind::Weights, fmt::format("producer '{}' has {} symbols that are not the {} the weights of {} learned", name, now.symbols.size(), was.symbols.size(), file), {}, {"give the source the vocabulary of the training text: ?vocabulary=FILE"});
    if (was.positions == 0 && was.sample.count() != now.sample.count() && was.classes == 0)
      throw Error(ErrorKind::Weights, fmt::format("producer '{}' delivers samples of shape {}, the weights of {} learned from {}", name, now.sample.str(), file, was.sample.str()));
  }
}

}  // namespace harmonics
