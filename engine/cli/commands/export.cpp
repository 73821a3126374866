// harmonics export: writes a model, or the weights of a run, to a file of another format.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/run/open_model.hpp"
#include "engine/cli/run/whole_model.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/model/exported.hpp"
#include "engine/model/imported.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/model/weights_file.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/transformer/adapter.hpp"
#include "engine/transformer/added_tokens.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/trained_weights.hpp"

namespace harmonics::engine::cli {

namespace {

std::pair<std::string, std::string> option_of(const std::string& text) {
  const size_t at = text.find('=');
  if (at == std::string::npos || at == 0)
    throw Error(ErrorKind::Usage, fmt::format("--option takes NAME=VALUE, not '{}'", text), {},
                {"'harmonics inspect FORMAT' lists the options of an exporter"});
  return {text.substr(0, at), text.substr(at + 1)};
}

// Returns the main file of an output: config.json for a folder.
std::string output_file(const std::string& to) { return to.ends_with('/') ? to + kFolderFile : model_file(to); }

ExportResult export_weights(const std::string& from, const std::string& to, Registry& registry,
                            const ExportOptions& how) {
  const TensorFile file = read_run_weights(from, registry);
  AttributeMap metadata;
  for (const auto& [key, text] : file.metadata) metadata.set(key, text);
  return export_model(file.tensors, metadata, to, registry, how, [&] {
    if (file.mapped) file.mapped->expect_whole();
  });
}

bool is_folder(const std::string& path) {
  std::error_code failed;
  return std::filesystem::is_directory(path, failed);
}

bool is_folder_of_huggingface(const std::string& to, const ExportOptions& how) {
  return std::filesystem::path(to.ends_with('/') ? to + kFolderFile : model_file(to)).filename() == kFolderFile &&
         (how.exporter.empty() || how.exporter == "huggingface");
}

// Writes a described model to a Hugging Face folder according to its description. Exporters write all other outputs.
ExportResult export_tensors(const ImportedModel& model, const std::map<std::string, HTensor>& tensors,
                            const std::string& to, const Options& options, const ExportOptions& how,
                            const std::function<void()>& written) {
  Registry& registry = Registry::global();
  const bool is_hf = is_folder_of_huggingface(to, how);
  const auto description = is_hf ? description_of(model) : nullptr;
  if (!description) {
    ExportOptions own = how;
    if (is_hf && options.shard_bytes > 0) own.options.emplace_back("shard-bytes", std::to_string(options.shard_bytes));
    return export_model(tensors, model.metadata.values(), to, registry, own, written);
  }
  NdslFolder target{std::filesystem::path(output_file(to)).parent_path().string(), options.tokenizer, {}, {}};
  if (options.shard_bytes > 0) target.shard_bytes = options.shard_bytes;
  for (const std::string& from : {options.weights, options.files[0]})
    if (target.tokenizer.empty() && is_folder(from)) target.tokenizer = from;
  if (const std::string& from = target.tokenizer; !from.empty()) {
    const auto tokenizer = Tokenizer::open(from, registry);
    target.begin = tokenizer->bos(), target.end = tokenizer->eos();
  } else {
    print_note("the folder has no tokenizer; --tokenizer FILE or FOLDER names one to copy");
  }
  const uint64_t bytes = write_ndsl_folder(*description, tensors, target, written);
  return {"huggingface", tensors.size(), bytes};
}

// Returns the tensors of a model with the adapters merged into them.
std::map<std::string, HTensor> with_adapters(const ImportedModel& model, const std::vector<AdapterFile>& files) {
  if (files.empty()) return model.tensors;
  const auto resolved = resolve_spec(model);
  std::vector<Adapter> adapters;
  for (const AdapterFile& file : files) adapters.push_back(read_adapter(file, *resolved, Registry::global()));
  return merged_tensors(model, *resolved, adapters);
}

ExportResult export_described(const std::string& from, const std::string& to, const Options& options,
                              const ExportOptions& how) {
  DescribedOptions described = described_options(options);
  described.whole = !is_folder_of_huggingface(to, how);
  const std::string& weights = options.weights;
  const std::vector<AdapterFile> files = adapter_files(options);
  if (weights.empty() && !files.empty())
    throw Error(ErrorKind::Usage, fmt::format("--lora changes weights, but '{}' has none", from), {},
                {"--weights FOLDER names those that the adapter was trained on"});
  if (weights.empty()) print_note(fmt::format("'{}' has no weights: these are initial values", from));
  const ImportedModel model = import_described(from, weights, Registry::global(), described);
  return export_tensors(model, with_adapters(model, files), to, options, how, [&] { model.expect_whole(); });
}

// Adds the ids of special tokens, which config.json of a folder contains, if there is a tokenizer.
void add_token_ids(const std::string& from, ImportedModel& model) {
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::open(from, Registry::global());
  } catch (const Error&) {  // none, or one that only transformers reads; its files are copied
    return;
  }
  AttributeMap metadata = model.metadata.values();
  for (const auto& [key, id] : {std::pair("tokenizer.ggml.bos_token_id", tokenizer->bos()),
                                std::pair("tokenizer.ggml.eos_token_id", tokenizer->eos()),
                                std::pair("tokenizer.ggml.padding_token_id", tokenizer->padding())})
    if (id) metadata.set(key, int64_t{*id});
  model.metadata = ModelMetadata(model.path, std::move(metadata));
}

ExportResult export_file(const std::string& from, const std::string& to, const Options& options,
                         const ExportOptions& how) {
  Registry& registry = Registry::global();
  if (is_ndsl(from)) return export_described(from, to, options, how);
  expect_model_folder(from);
  const std::vector<AdapterFile> files = adapter_files(options);
  if (!is_model(from, registry)) {
    if (!files.empty())
      throw Error(ErrorKind::Usage, fmt::format("'{}' is not a model that --lora could change", from));
    if (!options.weights.empty())
      throw Error(ErrorKind::Usage, fmt::format("'{}' is not a model that --weights could change", from));
    return export_weights(from, to, registry, how);
  }
  // A folder gets the tokenizer's files of a folder, or of a described model, so that the tokenizer's metadata, which
  // GGUF files have, is not needed.
  ImportedModel model;
  const bool is_hf = is_folder_of_huggingface(to, how);
  std::string tokenizer = options.tokenizer;
  if (tokenizer.empty() && is_hf && is_folder(from)) tokenizer = from;
  if (is_hf) model = import_language_model(from, registry, described_options(options));
  const bool copies = !tokenizer.empty() && !model.metadata.has(kDescribedBy);
  if (copies && !is_folder(from) && model.metadata.has("tokenizer.ggml.model"))
    throw Error(ErrorKind::Usage, fmt::format("--tokenizer has no effect: '{}' has its own tokenizer", from), {},
                {"leave it out"});
  if (!model.metadata.has(kDescribedBy) && !(is_hf && is_folder(from)))
    model = import_whole(from, registry, described_options(options));
  if (copies) add_token_ids(tokenizer, model);
  const auto with_tokenizer = [&](const ExportResult& result) {
    if (copies) copy_tokenizer_files(tokenizer, std::filesystem::path(output_file(to)).parent_path().string());
    return result;
  };
  const auto whole = [&] { model.expect_whole(); };
  if (!files.empty() && !options.weights.empty())
    throw Error(ErrorKind::Usage, "--weights and --lora change the same weights", {}, {"export twice: once with each"});
  if (!options.weights.empty()) {
    const TensorFile trained = read_run_weights(options.weights, registry);
    const auto learner = resolve_spec(import_language_model(from, registry, described_options(options)));
    return with_tokenizer(export_tensors(
        model, trained_tensors(model, *resolve_spec(model), *learner, trained, options.weights), to, options, how, [&] {
          whole();
          if (trained.mapped) trained.mapped->expect_whole();
        }));
  }
  return with_tokenizer(export_tensors(model, with_adapters(model, files), to, options, how, whole));
}

void add_tokens(const std::string& folder, const AddedTokens& tokens, const Options& options) {
  const AddedRows rows = add_special_tokens(folder, tokens);
  if (options.quiet) return;
  for (const std::string& text : rows.known)
    print_note(fmt::format("--add-token {}: the tokenizer already has this token, which is not changed", text));
  for (const auto& [text, id] : rows.tokens) say(fmt::format("token {}: {}", id, text));
  if (rows.after > rows.before)
    say(fmt::format("{} instead of {}: {}", number_of(static_cast<uint64_t>(rows.after), "row"), thousands(rows.before),
                    comma_separated(rows.resized)));
}

}  // namespace

int export_command(const Options& options) {
  if (options.cpp) return export_cpp(options);
  refuse_without(options, {"entry", "tokens"}, "--cpp");
  const std::string &from = options.files[0], &to = options.files[1];
  ExportOptions how{options.format, {}};
  for (const std::string& text : options.format_options) how.options.push_back(option_of(text));
  const bool is_hf = is_folder_of_huggingface(to, how);
  for (const auto& [flag, given] :
       {std::pair("--shard-size", options.shard_bytes > 0), std::pair("--add-token", !options.added_tokens.empty()),
        std::pair("--tokenizer", !options.tokenizer.empty())})
    if (given && !is_hf)
      throw Error(ErrorKind::Usage, fmt::format("{} is for Hugging Face folders, but '{}' is not one", flag, to))
          .note("write a folder: NAME/");
  const AddedTokens tokens = added_tokens_of(options.added_tokens);  // throws before anything is written
  const ExportResult result = export_file(from, to, options, how);
  if (!options.added_tokens.empty())
    add_tokens(std::filesystem::path(output_file(to)).parent_path().string(), tokens, options);
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
    print("{}: {}, {:.1f} MB, written by exporter {}\n", to, number_of(result.tensors, "tensor"),
          static_cast<double>(result.bytes) / 1e6, result.exporter);
  return kDone;
}

}  // namespace harmonics::engine::cli
