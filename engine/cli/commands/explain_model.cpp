#include "engine/cli/commands/explain_model.hpp"

#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "dsl/spec/reader.hpp"
#include "engine/cli/commands/graph_summary.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/spec_trace.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

struct ValueAsJson {
  template <typename T>
  json::value operator()(const T& value) const {
    return json::value(value);
  }
};

enum class FileKind { other, model, spec };

// Returns the kind of a file by its content, because flows may have any name.
FileKind kind_of_file(const std::string& path) {
  if (is_model(path, Registry::global())) return FileKind::model;
  std::error_code failed;
  if (path.ends_with(".hmx") || !std::filesystem::is_regular_file(path, failed)) return FileKind::other;
  const auto file = MappedFile::open(path);
  const std::string_view bytes(static_cast<const char*>(file->data()), file->bytes());
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  const bool object = first != std::string_view::npos && bytes[first] == '{';
  return object && bytes.find("\"architecture\"") != std::string_view::npos ? FileKind::spec : FileKind::other;
}

// Returns the names of caches and their bytes per token.
std::vector<std::pair<std::string, uint64_t>> caches_of(const ResolvedSpec& resolved, DType dtype) {
  std::vector<std::pair<std::string, uint64_t>> caches;
  for (const specs::Tensor& tensor : resolved.spec().tensors) {
    if (tensor.role != "cache") continue;
    for_each_turn(tensor.repeat, resolved.variables(), {}, [&](const LocalValues& locals) {
      caches.emplace_back(resolved.variables().interpolated(tensor.name, tensor.place, locals),
                          cache_type(resolved, tensor, locals, {1, 1, 1}, dtype).bytes());
    });
  }
  return caches;
}

uint64_t parameters_of(const ResolvedSpec& resolved) {
  uint64_t sum = 0;
  for (const auto& [name, type] : resolved.tensors()) sum += static_cast<uint64_t>(type.shape.count());
  return sum;
}

// Returns whether a model's folder has no files of weights, so that only its settings can be explained.
bool lacks_weights(const std::string& path) {
  const std::filesystem::path file = std::filesystem::absolute(model_file(path));
  if (file.filename() != kFolderFile) return false;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(file.parent_path(), failed))
    if (entry.path().extension() == ".safetensors") return false;
  return true;
}

// Imports a model, without weights if the files are missing. `described`: a .ndsl text may describe a model without a
// spec.
ImportedModel imported_for(const std::string& path, const Options& options, bool described) {
  if (!lacks_weights(path)) return described ? import_for(path, options) : import_model(path, Registry::global());
  if (!described) return import_model(path, Registry::global(), {"huggingface", {{"weights", "false"}}});
  DescribedOptions settings = described_options(options);
  settings.weights = false;
  return import_language_model(path, Registry::global(), settings);
}

void print_adapters(const std::vector<Adapter>& adapters) {
  for (const Adapter& adapter : adapters) {
    print("adapter {}\n  {}, applied with the factor {:g}\n", adapter.path, adapter.format, adapter.strength);
    for (const auto& [name, pair] : adapter.pairs)
      print("  {:<40} rank {}, alpha {:g}, scale {:g}\n", name, pair.rank(), pair.alpha, pair.scale);
  }
}

json::array adapters_json(const std::vector<Adapter>& adapters) {
  json::array all;
  for (const Adapter& adapter : adapters) {
    json::array pairs;
    for (const auto& [name, pair] : adapter.pairs)
      pairs.push_back(
          json::object{{"weight", name}, {"rank", pair.rank()}, {"alpha", pair.alpha}, {"scale", pair.scale}});
    all.push_back(json::object{{"file", adapter.path},
                               {"format", adapter.format},
                               {"factor", adapter.strength},
                               {"weights", std::move(pairs)}});
  }
  return all;
}

void print_model(const ResolvedSpec& resolved, const ImportedModel& imported, DType cache) {
  print("model {}\n  spec  {}\n  parameters  {}{}\nvariables\n", imported.path, resolved.spec().path,
        thousands(static_cast<int64_t>(parameters_of(resolved))),
        imported.tensors.empty() ? ", by its settings: the folder has no weights" : "");
  for (const auto& [name, value] : resolved.variables().resolved())
    print("  {:<22} {:<12} {}\n", name, specs::text_of(value.value), value.origin);
  print("weights\n");
  for (const auto& [name, weight] : resolved.weights())
    print("  {:<40} {}\n", name,
          weight.parameter.empty()
              ? "is not in the file"
              : resolved.tensors().at(weight.source).str() + (weight.source == name ? "" : ", from " + weight.source));
  const auto caches = caches_of(resolved, cache);
  uint64_t bytes = 0;
  for (const auto& [name, each] : caches) bytes += each;
  print("caches\n  {} in {}, {} in total for each token\n", caches.size(), dtype_name(cache), bytes_text(bytes));
}

json::object model_json(const ResolvedSpec& resolved, const ImportedModel& imported, DType cache) {
  json::array variables, weights, caches;
  for (const auto& [name, value] : resolved.variables().resolved())
    variables.push_back(
        json::object{{"name", name}, {"value", std::visit(ValueAsJson{}, value.value)}, {"origin", value.origin}});
  for (const auto& [name, weight] : resolved.weights()) {
    if (weight.parameter.empty()) continue;
    const TensorType& type = resolved.tensors().at(weight.source);
    weights.push_back(json::object{{"name", name},
                                   {"tensor", weight.source},
                                   {"dtype", std::string(dtype_name(type.dtype))},
                                   {"shape", json::value_from(type.shape.vector())}});
  }
  for (const auto& [name, bytes] : caches_of(resolved, cache))
    caches.push_back(json::object{{"name", name}, {"bytes_per_token", bytes}});
  return json::object{{"file", imported.path},  {"spec", resolved.spec().path}, {"parameters", parameters_of(resolved)},
                      {"variables", variables}, {"weights", weights},           {"caches", caches}};
}

}  // namespace

bool explain_model(const Options& options) {
  const std::string& path = options.files.front();
  const FileKind kind = kind_of_file(path);
  if (kind == FileKind::other) return false;
  const bool is_spec = kind == FileKind::spec;
  ModelOptions model = model_options(options);
  if (is_spec) {
    if (!options.spec.empty())
      throw Error(ErrorKind::Usage, fmt::format("'{}' is a spec, but --spec gives another one", path));
    if (options.weights.empty())
      throw Error(ErrorKind::Usage, fmt::format("'explain {}' lacks the file of a model", path), {},
                  {"give --weights MODEL.gguf"});
    model.spec = specs::read_spec(path);
  } else if (!options.weights.empty()) {
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' contains its own weights; --weights is for a spec or a flow", path));
  } else {
    expect_no_flow_flags(options);
  }
  const char* const what = is_spec ? "a spec" : "a model";
  if (!options.show.empty())
    throw Error(ErrorKind::Usage,
                fmt::format("--show {} has no effect: '{}' is {}", fmt::join(options.show, ","), path, what), {},
                {"a model shows its entries, program, kernels and memory"});
  refuse_flags(options, {"producer", "limits", "tokens", "infer", "optimizer", "lr", "schedule"}, what);
  const ImportedModel imported = imported_for(is_spec ? options.weights : path, options, !model.spec);
  const auto resolved = resolve_spec(imported, model);
  std::vector<Adapter> adapters;
  for (const AdapterFile& file : model.adapters) adapters.push_back(read_adapter(file, *resolved, Registry::global()));
  if (options.json) {
    json::object shown = model_json(*resolved, imported, model.cache);
    if (!adapters.empty()) shown["adapters"] = adapters_json(adapters);
    print_json(json::object{{"version", 1}, {"model", std::move(shown)}});
    return true;
  }
  print_model(*resolved, imported, model.cache);
  print_adapters(adapters);
  return true;
}

}  // namespace harmonics::engine::cli
