#include <memory>
#include <type_traits>

#include <boost/json.hpp>

#include "formats/exact_json.hpp"
#include "formats/utf8.hpp"
#include "models.hpp"

namespace safetensors {

using namespace harmonics;

namespace {

namespace json = boost::json;

using Texts = std::vector<std::vector<std::string>>;

[[noreturn]] void refuse(const std::string& path, std::string_view key, const std::string& what) {
  throw Error(ErrorKind::Weights, "'" + path + "' has the metadata " + shown_name(key) + ", " + what)
      .note("export the model again");
}

// Converts a list of numbers of one kind, or of texts, which `kept` then owns. An empty list is one of texts, such as
// the merges of a vocabulary of bytes.
MetadataValue list_of(const json::array& list, const std::string& path, std::string_view key, Texts& kept) {
  if (list.empty() || list.front().is_string()) {
    std::vector<std::string>& texts = kept.emplace_back();
    for (const json::value& item : list) {
      if (!item.is_string()) refuse(path, key, "a list of strings and other values");
      texts.emplace_back(item.get_string());
    }
    return std::vector<std::string_view>(texts.begin(), texts.end());
  }
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  for (const json::value& item : list) {
    if (item.is_int64())
      integers.push_back(item.get_int64());
    else if (item.is_double())
      numbers.push_back(item.get_double());
    else
      refuse(path, key, "a list of items that are neither numbers nor strings");
  }
  if (!integers.empty() && !numbers.empty()) refuse(path, key, "a list of whole numbers and fractions");
  return numbers.empty() ? MetadataValue(std::move(integers)) : MetadataValue(std::move(numbers));
}

MetadataValue value_of(const std::string& text, const std::string& path, std::string_view key, Texts& kept) {
  json::error_code failed;
  const json::value value = parse_json(text, failed);
  if (failed) refuse(path, key, "which is not JSON");
  switch (value.kind()) {
    case json::kind::int64:
      return value.get_int64();
    case json::kind::double_:
      return value.get_double();
    case json::kind::bool_:
      return value.get_bool();
    case json::kind::array:
      return list_of(value.get_array(), path, key, kept);
    default:
      refuse(path, key, "which is neither a number nor a flag nor a list");
  }
}

bool is_long(const MetadataValue& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (requires { v.begin(); } && !std::is_same_v<std::decay_t<decltype(v)>, std::string>)
          return v.size() > kLongestList;
        else
          return false;
      },
      value);
}

}  // namespace

uint32_t Importer::probe(const FileStart& file) const {
  constexpr size_t kLength = 8;
  if (file.first.size() <= kLength || file.first[kLength] != '{') return HX_PROBE_NO;
  uint64_t header = 0;
  for (size_t i = 0; i < kLength; ++i)
    header |= static_cast<uint64_t>(static_cast<unsigned char>(file.first[i])) << (8 * i);
  if (header > kLongestSafetensorsHeader) return HX_PROBE_NO;
  const std::string_view beginning = file.first.substr(kLength, header);
  return beginning.find("\"general.architecture\"") == std::string_view::npos ? HX_PROBE_NO : HX_PROBE_LIKELY;
}

ModelDescription describe(std::string_view bytes, const std::string& path, bool whole) {
  const SafetensorsHeader header = read_safetensors_header(bytes.data(), bytes.size(), {path, ErrorKind::Weights});
  ModelDescription model;
  const auto kept = std::make_shared<Texts>();
  for (const auto& [key, text] : header.metadata) {
    if (!key.starts_with(kValue)) {
      if (text.find('\0') != std::string::npos) refuse(path, key, "which has a zero byte");
      model.metadata[key] = text;
      continue;
    }
    const std::string name = key.substr(kValue.size());
    MetadataValue value = value_of(text, path, name, *kept);
    const bool texts = std::holds_alternative<std::vector<std::string_view>>(value);
    if (!whole && (texts || is_long(value))) continue;
    if (name.empty() || !model.metadata.emplace(name, std::move(value)).second)
      refuse(path, name, "which it has twice or without a name");
  }
  for (const TensorEntry& t : header.tensors)
    model.tensors.push_back({t.name, t.dtype, Shape(std::vector<int64_t>(t.shape.begin(), t.shape.end())),
                             header.data_offset + t.begin, t.end - t.begin});
  model.keep = kept;
  return model;
}

ModelDescription Importer::open(const ImportSource& source, const Arguments& options) const {
  return describe(source.bytes(), source.path(), options.flag("whole"));
}

}  // namespace safetensors
