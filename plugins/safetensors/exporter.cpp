#include <cmath>
#include <map>

#include <boost/json.hpp>

#include "formats/utf8.hpp"
#include "models.hpp"

namespace safetensors {

using namespace harmonics;

namespace {

namespace json = boost::json;

constexpr std::string_view kReserved = "harmonics.element_type:";  // written with the tensors

double finite(const std::string& key, double value) {
  if (std::isfinite(value)) return value;
  throw Error(ErrorKind::Weights, "the metadata " + shown_name(key) + " has the number " + std::to_string(value) +
                                      ", which safetensors files cannot hold");
}

struct ToJson {
  const std::string& key;
  json::value operator()(double v) const { return finite(key, v); }
  json::value operator()(const std::vector<double>& list) const {
    for (const double v : list) finite(key, v);
    return json::value_from(list);
  }
  json::value operator()(const std::vector<std::string_view>& list) const {
    json::array texts;
    for (const std::string_view text : list) texts.emplace_back(text);
    return texts;
  }
  template <typename T>
  json::value operator()(const T& v) const {
    return json::value_from(v);
  }
};

}  // namespace

std::string json_of(const std::string& key, const MetadataValue& value) {
  return json::serialize(std::visit(ToJson{key}, value));
}

void Exporter::write(const ModelToWrite& model, const Arguments&, const ExportSink& sink) const {
  SafetensorsHeader header;
  for (const auto& [key, value] : model.metadata) {
    if (key.starts_with(kValue) || key.starts_with(kReserved))
      throw Error(ErrorKind::Weights, "the metadata key " + shown_name(key) + " is reserved in safetensors files");
    if (const auto* text = std::get_if<std::string>(&value))
      header.metadata[key] = *text;
    else
      header.metadata[std::string(kValue) + key] = json_of(key, value);
  }
  std::map<std::string_view, std::string_view> bytes;
  for (const TensorToWrite& t : model.tensors) {
    bytes[t.name] = t.bytes;
    const std::vector<int64_t>& dims = t.shape.vector();
    header.tensors.push_back({std::string(t.name), t.dtype, std::vector<uint64_t>(dims.begin(), dims.end()), 0, 0});
  }
  order_as_written(header.tensors);
  uint64_t end = 0;
  for (TensorEntry& entry : header.tensors) {
    entry.begin = end;
    entry.end = end += bytes[entry.name].size();
  }
  sink.write(write_safetensors_header(header));
  for (const TensorEntry& entry : header.tensors) sink.write(bytes[entry.name]);
}

}  // namespace safetensors
