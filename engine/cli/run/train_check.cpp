// Checks combinations of keys of `train`, and the files that a configuration names.
#include <algorithm>
#include <filesystem>

#include <fmt/core.h>

#include "engine/base/nearest_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/options/hub_name.hpp"
#include "engine/cli/run/train_settings.hpp"
#include "engine/corpus/live_corpus.hpp"
#include "engine/transformer/layer_models.hpp"
#include "engine/transformer/ndsl_model.hpp"

namespace harmonics::engine::cli {

namespace {

namespace fs = std::filesystem;

// Returns the scalar with this text inside a value; null if there is none.
const document::Node* scalar_of(const document::Node& node, const std::string& text) {
  if (node.kind == document::Kind::scalar && node.text == text) return &node;
  for (const document::Node& item : node.items)
    if (const document::Node* found = scalar_of(item, text)) return found;
  for (const document::Entry& entry : node.entries)
    if (const document::Node* found = scalar_of(entry.value, text)) return found;
  return nullptr;
}

}  // namespace

TrainProblems::TrainProblems(const document::Document& config, const std::vector<std::string>& set)
    : config_(config), set_(set), file_(config.source), flags_{std::make_shared<const SourceText>("", ""), {}} {}

void TrainProblems::add(const std::vector<std::string>& keys, const std::string& what, const std::string& remedy,
                        ErrorKind kind) {
  Error error(kind, what);
  if (!remedy.empty()) error.note(remedy);
  add(keys, error);
}

void TrainProblems::add(const std::vector<std::string>& keys, const Error& error) {
  if (std::any_of(keys.begin(), keys.end(), [&](const std::string& key) { return doubts(key); })) return;
  for (const std::string& key : keys)
    for (const std::string& text : set_)
      if (find_train_key(text.substr(0, text.find('='))) == find_train_key(key))
        return add_flag(Error(error.kind(), fmt::format("--set {}: {}", text, error.what()), {}, error.notes()));
  Span place = error.span();
  for (size_t i = 0; i < keys.size() && place.line == 0; ++i)
    for (const document::Entry& entry : config_.root.entries)
      if (find_train_key(entry.key) == find_train_key(keys[i])) {
        place = entry.place;
        break;
      }
  if (place.line == 0) place = config_.root.span;
  file_.add(Error(error.kind(), error.what(), place, error.notes()));
}

void TrainProblems::add_update(const Error& e) {
  const std::string text = e.what();
  const std::string key = text.starts_with('\'') ? text.substr(1, text.find('\'', 1) - 1) : "";
  if (find_train_key(key))
    add({key}, Error(ErrorKind::Syntax, text, {}, e.notes()));
  else
    add({"optimizer", "lr_scheduler"}, Error(ErrorKind::Syntax, text, {}, e.notes()));
}

void TrainProblems::add_texts(const std::vector<TextErrors>& texts) {
  others_.insert(others_.end(), texts.begin(), texts.end());
}

void TrainProblems::throw_any() {
  std::vector<TextErrors> all{{config_.source, file_.take()}, flags_};
  all.insert(all.end(), others_.begin(), others_.end());
  throw_texts(std::move(all));
}

namespace {

void check_losses(const TrainSettings& settings, TrainProblems& problems) {
  if (settings.preferences && settings.distillation)
    problems.add({"dpo", "distillation"}, "'dpo' and 'distillation' exclude each other", "keep one of them");
  if (settings.preferences && settings.preferences->reference.empty() && settings.model.empty())
    problems.add({"model_dsl", "dpo"}, "'dpo' has no reference: a model of 'model_dsl' starts with random weights",
                 "give model:, or reference: in dpo");
  if (settings.preferences && settings.sample_packing.value_or(false))
    problems.add({"sample_packing"},
                 "'sample_packing' cannot be used with preferences: each pair of answers has its own row",
                 "remove sample_packing");
}

}  // namespace

void check_train_settings(const TrainSettings& settings, TrainProblems& problems) {
  if (settings.model.empty() && settings.model_dsl.empty() && !problems.doubts("model") &&
      !problems.doubts("model_dsl"))
    problems.add({}, "the configuration names no model", "give model: or model_dsl:");
  if (!settings.model.empty() && !settings.model_dsl.empty())
    problems.add({"model_dsl"}, "'model' and 'model_dsl' exclude each other", "keep one of them");
  check_losses(settings, problems);
  if (settings.corpus.datasets.empty() && !problems.doubts("datasets"))
    problems.add({}, "the configuration has no 'datasets'", "datasets: [FILE]");
  if (settings.model.empty() && settings.corpus.tokenizer.empty() && !problems.doubts("tokenizer"))
    problems.add({"model_dsl"}, "a model of 'model_dsl' does not contain a tokenizer",
                 "give tokenizer: a file or folder, characters, or bytes");
  const bool validates = !settings.validation_sets.empty() || settings.corpus.validation > 0 ||
                         problems.doubts("validation") || problems.doubts("validation_datasets");
  const char* const remedy = "give validation: 0.1, or validation_datasets";
  if (settings.keep_best > 0 && !validates)
    problems.add({"save_best_limit"}, "'save_best_limit' needs validation losses", remedy);
  if (settings.patience && !validates)
    problems.add({"early_stopping_patience"}, "'early_stopping_patience' needs validation losses", remedy);
  if (settings.validation_rows > 0 && !validates)
    problems.add({"eval_samples"}, "'eval_samples' needs validation data", remedy);
  const auto of_validation = [](const std::string& condition) { return condition.starts_with("val."); };
  if (!validates && std::any_of(settings.stop_when.begin(), settings.stop_when.end(), of_validation))
    problems.add({"stop_when"}, "'stop_when' needs validation data", remedy);
  if (!settings.validation_sets.empty() && settings.corpus.validation > 0)
    problems.add({"validation", "validation_datasets"}, "'validation' and 'validation_datasets' exclude each other",
                 "keep one of them");
  const auto weighted = std::count_if(settings.corpus.datasets.begin(), settings.corpus.datasets.end(),
                                      [](const DatasetOptions& d) { return d.weight > 0; });
  if (weighted != 0 && static_cast<size_t>(weighted) != settings.corpus.datasets.size())
    problems.add({"datasets"}, "some data sets have a weight, but others have none", "give all of them one");
  try {
    optimizer_text(settings);
    schedule_text(settings);
  } catch (const Error& e) {
    problems.add_update(e);
  }
}

namespace {

bool exists_there(const std::string& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

// Checks that a model exists: a file, a folder or a built-in name. An error of the flow would refer to its generated
// text.
void expect_model(const char* key, const std::string& model, const std::string& folder, TrainProblems& problems) {
  if (exists_there(model) || exists_there((fs::path(folder) / model).string()) || builtin_ndsl(model)) return;
  Error e(ErrorKind::NoInput, fmt::format("there is no model '{}'", model));
  const std::string meant = did_you_mean(model, builtin_ndsl_models());
  if (const std::string command = download_command(model); !command.empty())
    e.note("models are not downloaded automatically; to download one: " + command);
  else if (const std::string advice = meant.empty() ? advice_for_missing(model) : meant; !advice.empty())
    e.note(advice);
  problems.add({key}, e.note("give a file or folder, or the name of a built-in model: 'harmonics list models'"));
}

void expect_data(const char* key, const std::vector<DatasetOptions>& sets, const document::Node& root,
                 TrainProblems& problems) {
  for (const DatasetOptions& set : sets) {
    if (is_live_address(set.path) || exists_there(set.path) || set.path.find_first_of("*?[") != std::string::npos)
      continue;
    const document::Node* at = scalar_of(root, set.path);
    Error e(ErrorKind::NoInput, fmt::format("there is no '{}'", set.path), at ? at->span : Span());
    if (const std::string command = download_command(set.path);
        !command.empty() && fs::path(set.path).extension().empty())
      e.note("data sets are not downloaded automatically; to download one: " + command + " --repo-type dataset");
    else if (const std::string advice = advice_for_missing(set.path); !advice.empty())
      e.note(advice);
    problems.add({key}, e);
  }
}

// Requires a number of rows for validation on a stream, whose end is unknown and whose rows are read once.
void expect_rows_of_streams(const TrainSettings& settings, TrainProblems& problems) {
  for (const DatasetOptions& set : settings.validation_sets) {
    if (!is_live_address(set.path)) continue;
    if (settings.validation_rows == 0 && !problems.doubts("eval_samples"))
      problems.add({"validation_datasets"},
                   fmt::format("'{}' is a stream, of which each validation needs a number of rows", set.path),
                   "give eval_samples: 100; each validation then waits for the next 100 rows");
    const auto same = [&](const DatasetOptions& trained) { return trained.path == set.path; };
    if (std::any_of(settings.corpus.datasets.begin(), settings.corpus.datasets.end(), same))
      problems.add({"validation_datasets"}, fmt::format("'{}' is the stream that the run learns from", set.path),
                   "name another stream, or remove it: 'window.loss' is of samples before they are learned");
  }
}

// Compiles a `.ndsl` description, so that its errors are reported before the data is read.
void expect_description(const TrainSettings& settings, TrainProblems& problems) {
  const std::string& model = settings.model_dsl;
  if (!is_ndsl(model) || (!exists_there(model) && !builtin_ndsl(model)) || problems.doubts("model_settings")) return;
  NdslOptions options;
  options.set = settings_in(settings.model_settings).value_or(std::map<std::string, std::string>());
  try {
    (void)compile_ndsl_model(model, options);
  } catch (const SourceErrors& e) {
    problems.add_texts(e.texts());
  } catch (const Error& e) {
    problems.add({settings.model_settings.empty() ? "model_dsl" : "model_settings"}, e);
  }
}

}  // namespace

void check_train_files(const TrainSettings& settings, const std::string& folder, TrainProblems& problems) {
  if (!settings.model.empty())
    expect_model("model", settings.model, folder, problems);
  else if (!settings.model_dsl.empty())
    expect_model("model_dsl", settings.model_dsl, folder, problems);
  if (settings.model.empty()) expect_description(settings, problems);
  const std::string& tokenizer = settings.corpus.tokenizer;
  if (!tokenizer.empty() && tokenizer != "characters" && tokenizer != "bytes" && !exists_there(tokenizer)) {
    Error e(ErrorKind::NoInput, fmt::format("there is no tokenizer '{}'", tokenizer));
    const std::string meant = did_you_mean(tokenizer, {"characters", "bytes"});
    if (const std::string advice = meant.empty() ? advice_for_missing(tokenizer) : meant; !advice.empty())
      e.note(advice);
    problems.add({"tokenizer"}, e.note("give a file or folder, or characters or bytes"));
  }
  const document::Node& root = problems.config();
  expect_data("datasets", settings.corpus.datasets, root, problems);
  expect_data("validation_datasets", settings.validation_sets, root, problems);
  expect_rows_of_streams(settings, problems);
  if (settings.distillation && !settings.distillation->teacher.empty())
    expect_model("distillation", settings.distillation->teacher, folder, problems);
  if (settings.preferences && !settings.preferences->reference.empty())
    expect_model("dpo", settings.preferences->reference, folder, problems);
}

void settle_window(TrainSettings& settings, const std::string& folder, TrainProblems& problems) {
  constexpr uint64_t kUsual = 512;
  const uint64_t given = settings.corpus.window;
  uint64_t window = given > 0 ? given : kUsual;
  const auto limit = [&](const char* key, const std::string& model, const std::string& set) {
    if (model.empty() || problems.doubts(key) || problems.doubts("sequence_len")) return;
    const std::string beside = (fs::path(folder) / model).string();
    const bool there = !exists_there(model) && exists_there(beside);
    try {
      const auto context = static_cast<uint64_t>(context_of_model(
          there ? beside : model, settings_in(set).value_or(std::map<std::string, std::string>()), Registry::global()));
      if (context >= window) return;
      if (given > 0)
        problems.add({"sequence_len"},
                     fmt::format("'sequence_len' is {}, but the context of '{}' is {}", given, model, context),
                     fmt::format("give at most {}", context));
      else
        settings.notes.push_back(fmt::format("sequence_len is {}, the context of '{}'", context, model));
      window = context;
    } catch (const Error&) {  // reported when the run opens the model
    }
  };
  if (settings.model.empty())
    limit("model_dsl", settings.model_dsl, settings.model_settings);
  else
    limit("model", settings.model, settings.model_settings);
  if (settings.distillation) limit("distillation", settings.distillation->teacher, "");
  if (settings.preferences) limit("dpo", settings.preferences->reference, "");
  settings.corpus.window = window;
}

}  // namespace harmonics::engine::cli
