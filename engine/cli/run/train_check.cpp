// Checks of a configuration of `train` that single keys do not show.
#include <algorithm>
#include <initializer_list>

#include <fmt/core.h>

#include "engine/cli/run/train_settings.hpp"

namespace harmonics::engine::cli {

namespace {

// A problem of the whole configuration, at the first of these keys that was given.
class WholeProblems {
 public:
  WholeProblems(const document::Node& root, const std::vector<std::string>& set, document::Problems& problems)
      : root_(root), set_(set), problems_(problems) {}

  void add(std::initializer_list<std::string> keys, const std::string& what, const std::string& remedy) {
    for (const std::string& key : keys)
      for (const std::string& text : set_)
        if (find_train_key(text.substr(0, text.find('='))) == find_train_key(key))
          return problems_.add({}, fmt::format("--set {}: {}", text, what), remedy);
    for (const std::string& key : keys)
      for (const document::Entry& entry : root_.entries)
        if (find_train_key(entry.key) == find_train_key(key)) return problems_.add(entry.place, what, remedy);
    problems_.add(root_.span, what, remedy);
  }
  // An error of the optimizer or the schedule, which may begin with a key in quotes.
  void add(const Error& e) {
    const std::string text = e.what(), remedy = e.notes().empty() ? "" : e.notes().front();
    const std::string key = text.starts_with('\'') ? text.substr(1, text.find('\'', 1) - 1) : "";
    if (find_train_key(key))
      add({key}, text, remedy);
    else
      add({"optimizer", "lr_scheduler"}, text, remedy);
  }

 private:
  const document::Node& root_;
  const std::vector<std::string>& set_;
  document::Problems& problems_;
};

void check_losses(const TrainSettings& settings, WholeProblems& problems) {
  if (settings.preferences && settings.distillation)
    problems.add({"dpo", "distillation"}, "'dpo' and 'distillation' exclude each other", "keep one of them");
  if (settings.preferences && settings.preferences->reference.empty() && settings.model.empty())
    problems.add({"model_dsl", "dpo"}, "'dpo' has no reference: a model of 'model_dsl' begins with random weights",
                 "give model:, or reference: in dpo");
  if (settings.preferences && settings.sample_packing.value_or(false))
    problems.add({"sample_packing"},
                 "'sample_packing' has no place for preferences: each pair of answers has a row of its own",
                 "remove sample_packing");
}

}  // namespace

void check_train_settings(const TrainSettings& settings, const document::Node& root,
                          const std::vector<std::string>& set, document::Problems& all) {
  WholeProblems problems(root, set, all);
  if (settings.model.empty() && settings.model_dsl.empty())
    problems.add({}, "the configuration names no model", "give model: or model_dsl:");
  if (!settings.model.empty() && !settings.model_dsl.empty())
    problems.add({"model_dsl"}, "'model' and 'model_dsl' exclude each other", "keep one of them");
  check_losses(settings, problems);
  if (settings.corpus.datasets.empty()) problems.add({}, "the configuration has no 'datasets'", "datasets: [FILE]");
  if (settings.model.empty() && settings.corpus.tokenizer.empty())
    problems.add({"model_dsl"}, "a model of 'model_dsl' has no tokenizer of its own",
                 "give tokenizer: a file or folder, characters, or bytes");
  const bool validates = !settings.validation_sets.empty() || settings.corpus.validation > 0;
  const char* const remedy = "give validation: 0.1, or validation_datasets";
  if (settings.keep_best > 0 && !validates)
    problems.add({"save_best_limit"}, "'save_best_limit' needs validation losses", remedy);
  if (settings.patience && !validates)
    problems.add({"early_stopping_patience"}, "'early_stopping_patience' needs validation losses", remedy);
  const auto of_validation = [](const std::string& condition) { return condition.starts_with("val."); };
  if (!validates && std::any_of(settings.stop_when.begin(), settings.stop_when.end(), of_validation))
    problems.add({"stop_when"}, "'stop_when' needs validation data", remedy);
  if (!settings.validation_sets.empty() && settings.corpus.validation > 0)
    problems.add({"validation", "validation_datasets"}, "'validation' and 'validation_datasets' exclude each other",
                 "keep one of them");
  const auto weighted = std::count_if(settings.corpus.datasets.begin(), settings.corpus.datasets.end(),
                                      [](const DatasetOptions& d) { return d.weight > 0; });
  if (weighted != 0 && static_cast<size_t>(weighted) != settings.corpus.datasets.size())
    problems.add({"datasets"}, "some data sets have a weight, and others have none", "give all of them one");
  try {
    optimizer_text(settings);
    schedule_text(settings);
  } catch (const Error& e) {
    problems.add(e);
  }
}

}  // namespace harmonics::engine::cli
