#include "engine/bound/recorded_streams.hpp"

#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "formats/exact_json.hpp"

namespace harmonics::engine {

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
  return {{"harmonics.format", "1"},
          {"harmonics.name", graph.name},
          {"harmonics.graph", graph.source ? graph.source->text() : ""},
          {"harmonics.streams", json::serialize(streams)}};
}

std::map<int, StreamType> read_recorded_streams(const Graph& graph, const std::map<std::string, std::string>& metadata,
                                                const std::string& file) {
  std::map<int, StreamType> result;
  const auto it = metadata.find("harmonics.streams");
  if (it == metadata.end()) return result;
  try {
    const json::value value = parse_json(it->second);
    for (const auto& [name, v] : value.as_object()) {
      const int n = graph.find(std::string_view(name.data(), name.size()));
      if (n < 0 || graph.nodes[static_cast<size_t>(n)].kind != DeclarationKind::Producer) continue;
      const json::object& o = v.as_object();
      StreamType t;
      t.dtype = dtype_named(std::string_view(o.at("dtype").as_string()));
      t.sample = Shape(json::value_to<std::vector<int64_t>>(o.at("sample")));
      t.positions = static_cast<uint32_t>(o.at("positions").to_number<int64_t>());
      t.classes = o.at("classes").to_number<int64_t>();
      if (const json::value* symbols = o.if_contains("symbols"))
        t.symbols = json::value_to<std::vector<std::string>>(*symbols);
      from_c(to_c({t.dtype, t.sample}));
      if (is_stored(t.dtype)) throw Error(ErrorKind::Weights, "samples of a stored type");
      if (t.classes < 0) throw Error(ErrorKind::Weights, "a negative number of classes");
      if (t.positions > t.sample.rank()) throw Error(ErrorKind::Weights, "more positions than dimensions");
      result[n] = std::move(t);
    }
  } catch (const std::exception& e) {
    throw Error(ErrorKind::Weights, fmt::format("{}: the metadata 'harmonics.streams' is invalid: {}", file, e.what()));
  }
  return result;
}

namespace {

struct Compared {
  const std::string& name;  // the producer's
  const StreamType &was, &now;
  const std::string& file;
};

std::string kind_of(const StreamType& t) {
  return fmt::format("{}{}", dtype_name(t.dtype), t.dtype == DType::U8 ? ", scaled to [0, 1]" : ", used unchanged");
}

// Returns a message if the types differ. Bytes are scaled to [0, 1] and other integers are not, so a change between
// them throws. Floating-point numbers may have been scaled by their source.
std::string other_numbers(const Compared& c) {
  if (c.was.dtype == c.now.dtype) return "";
  const bool rescaled = (c.was.dtype == DType::U8) != (c.now.dtype == DType::U8);
  const std::string text = fmt::format("producer '{}' gives {}, but {} was trained on {}", c.name,
                                       rescaled ? kind_of(c.now) : dtype_name(c.now.dtype), c.file,
                                       rescaled ? kind_of(c.was) : dtype_name(c.was.dtype));
  if (rescaled && !is_float(c.was.dtype) && !is_float(c.now.dtype))
    throw Error(
        ErrorKind::Weights, text, {},
        {c.was.dtype == DType::U8 ? "give bytes (u8), or f32 in [0, 1]"
                                  : fmt::format("give {} or f32, which are used unchanged", dtype_name(c.was.dtype))});
  return text;
}

std::string other_shape(const Compared& c, OtherShape other) {
  if (c.was.positions > 0 || c.was.sample == c.now.sample || c.was.classes != 0) return "";
  const std::string text =
      fmt::format("producer '{}' delivers samples of shape {}, but the weights of {} were trained on {}", c.name,
                  c.now.sample.str(), c.file, c.was.sample.str());
  if (c.was.sample.count() != c.now.sample.count() && other == OtherShape::refused)
    throw Error(ErrorKind::Weights, text);
  return text;
}

}  // namespace

namespace {

// Symbols of one character come from a text, others from a column of words.
std::string symbols_advice(const StreamType& was) {
  const auto is_letter = [](const std::string& s) {
    return std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xC0) != 0x80; }) == 1;
  };
  if (std::all_of(was.symbols.begin(), was.symbols.end(), is_letter))
    return "give the source the vocabulary of the training text: ?vocabulary=FILE";
  constexpr size_t kMost = 40;
  std::string all;
  for (size_t i = 0; i < std::min(was.symbols.size(), kMost); ++i) all += (i ? "," : "") + was.symbols[i];
  return "give the column the words of the training data, in their order: ?symbols=" + all +
         (was.symbols.size() > kMost ? ",..." : "");
}

}  // namespace

std::vector<std::string> check_recorded(const Graph& graph, const std::map<int, StreamType>& recorded,
                                        const std::map<int, StreamType>& bound, const std::string& file,
                                        OtherShape other) {
  std::vector<std::string> notes;
  for (const auto& [n, was] : recorded) {
    const auto it = bound.find(n);
    if (it == bound.end()) continue;
    const Compared c{graph.nodes[static_cast<size_t>(n)].name, was, it->second, file};
    if (!was.symbols.empty() && !c.now.symbols.empty() && was.symbols != c.now.symbols)
      throw Error(ErrorKind::Weights,
                  fmt::format("producer '{}' has {}, other than the {} of the weights of {}", c.name,
                              quantity(c.now.symbols.size(), "symbol"), was.symbols.size(), file),
                  {}, {symbols_advice(was)});
    std::vector<std::string> texts{other_shape(c, other)};
    if (read_as_numbers(graph, n, c.now)) texts.push_back(other_numbers(c));
    for (std::string& text : texts)
      if (!text.empty()) notes.push_back(std::move(text));
  }
  return notes;
}

}  // namespace harmonics::engine
