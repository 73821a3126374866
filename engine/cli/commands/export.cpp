// harmonics export: writes a model, or the weights of a run, to a file of another format.
#include <algorithm>
#include <utility>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/whole_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/exported.hpp"
#include "engine/model/imported.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/model/sealed_file.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/trained_weights.hpp"

namespace harmonics::engine::cli {

namespace {

std::pair<std::string, std::string> option_of(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0)
    throw Error(ErrorKind::Usage, fmt::format("--option takes NAME=VALUE, not '{}'", text));
  return {text.substr(0, at), text.substr(at + 1)};
}

ExportResult export_weights(const std::string& from, const std::string& to, Registry& registry,
                            const ExportOptions& how) {
  TensorFile file = read_weights(from);
  if (holds_state(file))  // a checkpoint: only its weights
    std::erase_if(file.tensors, [](const auto& entry) { return entry.first.find('/') != std::string::npos; });
  AttributeMap metadata;
  for (const auto& [key, text] : file.metadata) metadata.set(key, text);
  return export_model(file.tensors, metadata, to, registry, how, [&] {
    if (file.mapped) file.mapped->expect_whole();
  });
}

ExportResult export_file(const std::string& from, const std::string& to, const Options& options,
                         const ExportOptions& how) {
  Registry& registry = Registry::global();
  const std::vector<AdapterFile> files = adapter_files(options);
  if (!is_model(from, registry)) {
    if (!files.empty()) throw Error(ErrorKind::Usage, fmt::format("'{}' is no model that --lora could change", from));
    if (!options.weights.empty())
      throw Error(ErrorKind::Usage, fmt::format("'{}' is no model that --weights could change", from));
    return export_weights(from, to, registry, how);
  }
  const ImportedModel model = import_whole(from, registry);
  if (!files.empty() && !options.weights.empty())
    throw Error(ErrorKind::Usage, "--weights and --lora change the same weights", {}, {"export twice: once with each"});
  if (!options.weights.empty()) {
    TensorFile trained = read_weights(options.weights);
    if (holds_state(trained))
      std::erase_if(trained.tensors, [](const auto& entry) { return entry.first.find('/') != std::string::npos; });
    return export_model(trained_tensors(model, *resolve_spec(model), trained, options.weights), model.metadata.values(),
                        to, registry, how, [&] {
                          model.expect_whole();
                          if (trained.mapped) trained.mapped->expect_whole();
                        });
  }
  if (!files.empty()) {
    const auto resolved = resolve_spec(model);
    std::vector<Adapter> adapters;
    for (const AdapterFile& adapter : files) adapters.push_back(read_adapter(adapter, *resolved, registry));
    return export_model(merged_tensors(model, *resolved, adapters), model.metadata.values(), to, registry, how,
                        [&] { model.expect_whole(); });
  }
  return export_model(model.tensors, model.metadata.values(), to, registry, how, [&] { model.expect_whole(); });
}

}  // namespace

int export_command(const Options& options) {
  const std::string &from = options.files[0], &to = options.files[1];
  ExportOptions how{options.format, {}};
  for (const std::string& text : options.format_options) how.options.push_back(option_of(text));
  const ExportResult result = export_file(from, to, options, how);
  if (options.json) {
    print_json(boost::json::object{{"version", 1},
                                   {"from", from},
                                   {"to", to},
                                   {"format", result.exporter},
                                   {"tensors", result.tensors},
                                   {"bytes", result.bytes}});
    return kDone;
  }
  if (!options.quiet)
    print("{}: {} tensors, {:.1f} MB, written by exporter {}\n", to, thousands(static_cast<int64_t>(result.tensors)),
          static_cast<double>(result.bytes) / 1e6, result.exporter);
  return kDone;
}

}  // namespace harmonics::engine::cli
