#include "engine/cli/commands/model_summary.hpp"

#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/importer_abi.h>

#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/contract/file_reader.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/model/imported.hpp"
#include "engine/tensor/literal_text.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

constexpr size_t kShownText = 100, kShownListed = 8;

struct ShownValue {
  std::string operator()(int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return float_text(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(const std::string& v) const {
    const std::string line = v.substr(0, v.find('\n'));
    if (line.size() > kShownText) return line.substr(0, kShownText - 3) + "...";
    return line.size() < v.size() ? line + " ..." : line;
  }
  template <typename T>
  std::string operator()(const std::vector<T>& v) const {
    std::string text;
    for (size_t i = 0; i < v.size() && i < kShownListed; ++i) text += (i ? ", " : "") + (*this)(v[i]);
    return "[" + text + (v.size() > kShownListed ? fmt::format(", ... {} in all]", v.size()) : "]");
  }
};

struct JsonValue {
  template <typename T>
  json::value operator()(const T& v) const {
    return json::value_from(v);
  }
};

void show_model(const ImportedModel& model, const Options& options) {
  if (options.json) {
    json::object metadata;
    for (const auto& [key, value] : model.metadata.values().entries()) metadata[key] = std::visit(JsonValue{}, value);
    json::array tensors;
    for (const auto& [name, tensor] : model.tensors)
      tensors.push_back(json::object{{"name", name},
                                     {"dtype", std::string(dtype_name(tensor.dtype()))},
                                     {"shape", json::value_from(tensor.shape().vector())}});
    return print_json(json::object{{"version", 1},
                                   {"file", model.path},
                                   {"importer", model.importer->name},
                                   {"parameters", model.parameters()},
                                   {"metadata", metadata},
                                   {"tensors", tensors}});
  }
  print("model {}\n  read by     importer {}\n  parameters  {}\n", model.path, model.importer->name,
        thousands(static_cast<int64_t>(model.parameters())));
  print("metadata\n");
  constexpr std::string_view kLength = "@len:";  // lengths of lists that are read only for their length
  for (const auto& [key, value] : model.metadata.values().entries()) {
    const std::string text = std::visit(ShownValue{}, value);
    if (key.starts_with(kLength))
      print("  {} = {} items\n", key.substr(kLength.size()), text);
    else
      print("  {} = {}\n", key, text);
  }
  print("{} tensors\n", model.tensors.size());
  for (const auto& [name, tensor] : model.tensors) print("  {:<40} {}\n", name, type_of(tensor).str());
}

void show_tokenizer(const std::string& path, const Tokenizer& tokenizer, const Options& options) {
  const std::pair<const char*, std::optional<int32_t>> special[] = {{"begin", tokenizer.bos()},
                                                                    {"end", tokenizer.eos()},
                                                                    {"unknown", tokenizer.unknown()},
                                                                    {"padding", tokenizer.padding()}};
  if (options.json) {
    json::object ids;
    for (const auto& [name, id] : special)
      if (id) ids[name] = *id;
    return print_json(json::object{{"version", 1},
                                   {"file", path},
                                   {"tokenizer", tokenizer.item().name},
                                   {"tokens", tokenizer.size()},
                                   {"ids", ids}});
  }
  print("tokenizer {}\n  read by     tokenizer {}\n  tokens      {}\n", path, tokenizer.item().name,
        thousands(tokenizer.size()));
  for (const auto& [name, id] : special)
    if (id) print("  {:<11} {}\n", name, *id);
}

}  // namespace

bool inspect_model_file(const std::string& given, const Options& options) {
  std::error_code failed;
  const std::string path = model_file(given);
  if (!std::filesystem::is_regular_file(path, failed)) return false;
  Registry& registry = Registry::global();
  const auto file = MappedFile::open(path);
  const std::string_view bytes(static_cast<const char*>(file->data()), file->bytes());
  if (find_reader(HX_IMPORTER, path, bytes, registry)) {
    show_model(import_model(path, registry), options);
    return true;
  }
  if (!find_reader(HX_TOKENIZER, path, bytes, registry)) return false;
  show_tokenizer(path, *Tokenizer::open(path, registry), options);
  return true;
}

}  // namespace harmonics::engine::cli
