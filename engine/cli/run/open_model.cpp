#include "engine/cli/run/open_model.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/core.h>

#include "engine/base/nearest_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/checkpoint/checkpoint_folder.hpp"
#include "engine/cli/run/model_options.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/transformer/described.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

OpenedModel open_model(const std::string& path, const Options& options) {
  OpenedModel opened;
  if (is_ndsl(path))
    opened.imported = import_described(path, options.weights, Registry::global(), described_options(options));
  else
    opened.imported = import_for(path, options);
  opened.model = model_of(opened.imported, model_options(options));
  opened.model.limits = options.limits;
  return opened;
}

void expect_no_misspelt_model(const std::string& path) {
  std::error_code failed;
  if (path.find_first_of("/.") != std::string::npos || builtin_ndsl(path)) return;
  if (std::filesystem::exists(path, failed)) return;
  if (const std::string meant = did_you_mean(path, builtin_ndsl_models()); !meant.empty())
    throw Error(ErrorKind::NoInput, fmt::format("there is no file and no built-in model '{}'", path), {}, {meant});
}

std::string checkpoint_in(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_directory(path, failed)) return path;
  const auto entries = CheckpointFolder(path).list();
  return entries.empty() ? path : entries.front().path;
}

void note_unapplied_adapter(const Options& options) {
  std::error_code failed;
  if (options.quiet || options.files.empty() || !options.lora.empty()) return;
  if (options.verb != "export" && !is_ndsl(options.files.front())) return;
  if (!options.weights.ends_with(".safetensors") || !std::filesystem::is_regular_file(options.weights, failed)) return;
  std::map<std::string, HTensor> tensors;
  try {
    tensors = read_safetensors(options.weights).tensors;
  } catch (const Error&) {
    return;  // the verb reports it
  }
  const auto is_of_adapter = [](const auto& entry) { return entry.first.ends_with(".lora_A"); };
  if (std::any_of(tensors.begin(), tensors.end(), is_of_adapter))
    print_note(
        fmt::format("'{}' also has an adapter, which is not applied: --lora takes its folder, output_dir/adapter "
                    "of 'train' or --save-adapter of 'run'",
                    options.weights));
}

void expect_given_weights(const Options& options) {
  std::error_code failed;
  if (const std::string& weights = options.weights; !weights.empty() && !std::filesystem::exists(weights, failed))
    throw Error(ErrorKind::NoInput, fmt::format("--weights: there is no '{}'", weights), {},
                {advice_for_missing(weights)});
}

void refuse_flags(const Options& options, std::initializer_list<const char*> flags, const std::string& what) {
  for (const char* flag : flags)
    if (options.given.contains(flag))
      throw Error(ErrorKind::Usage, fmt::format("--{} has no effect: '{}' is {}", flag, options.files.front(), what),
                  {}, {"leave it out"});
}

void refuse_beside(const Options& options, std::initializer_list<const char*> flags, const char* other) {
  for (const char* flag : flags)
    if (options.given.contains(flag))
      throw Error(ErrorKind::Usage, fmt::format("--{} has no effect beside {}", flag, other), {},
                  {"leave one of them out"});
}

void refuse_without(const Options& options, std::initializer_list<const char*> flags, const char* other) {
  for (const char* flag : flags)
    if (options.given.contains(flag))
      throw Error(ErrorKind::Usage, fmt::format("--{} has no effect without {}", flag, other), {},
                  {fmt::format("add {}", other)});
}

void expect_no_flow_flags(const Options& options) {
  const std::pair<const char*, bool> flags[] = {{"--weights", !options.weights.empty()},
                                                {"--weights-from", !options.weights_from.empty()},
                                                {"--graph", !options.graph.empty()},
                                                {"--untrained", options.untrained},
                                                {"--dot", options.dot}};
  for (const auto& [name, given] : flags)
    if (given)
      throw Error(ErrorKind::Usage,
                  fmt::format("{} is for flows, but '{}' is a model with its own weights", name, options.files.front()),
                  {}, {"leave it out"});
}

}  // namespace harmonics::engine::cli
