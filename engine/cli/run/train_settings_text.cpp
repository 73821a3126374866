// Formats settings of `train`: the optimizer, the schedule, and the whole configuration.
#include <algorithm>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "engine/cli/run/train_settings.hpp"
#include "engine/training/optimizer.hpp"
#include "engine/training/schedule.hpp"
#include "engine/transformer/added_tokens.hpp"
#include "engine/transformer/lora_settings.hpp"

namespace harmonics::engine::cli {

namespace {

const NamedRow& row_named(const std::vector<NamedRow>& rows, const std::string& name) {
  return *std::find_if(rows.begin(), rows.end(), [&](const NamedRow& row) { return row.name == name; });
}

// Builds NAME(setting=value, ...) from the given settings.
class NamedText {
 public:
  NamedText(const std::vector<NamedRow>& rows, const std::string& text) {
    const size_t open = text.find('(');
    name_ = text.substr(0, open);
    if (open != std::string::npos) settings_ = text.substr(open + 1, text.size() - open - 2);
    row_ = &row_named(rows, name_);
  }
  void add(const char* key, const char* setting, std::optional<double> value) {
    if (!value) return;
    if (std::none_of(row_->settings.begin(), row_->settings.end(),
                     [&](const SettingSpec& spec) { return spec.name == setting; }))
      throw Error(ErrorKind::Usage, fmt::format("'{}' has no effect: '{}' has no such setting", key, name_))
          .note("remove it");
    settings_ += fmt::format("{}{}={:g}", settings_.empty() ? "" : ", ", setting, *value);
  }
  std::string text() const { return settings_.empty() ? name_ : name_ + "(" + settings_ + ")"; }

 private:
  std::string name_, settings_;
  const NamedRow* row_;
};

std::optional<double> above_zero(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

std::string yaml_datasets(const char* key, const std::vector<DatasetOptions>& sets) {
  if (sets.empty()) return "";
  std::string text = fmt::format("{}:\n", key);
  for (const DatasetOptions& set : sets) {
    text += fmt::format("  - path: {}\n    type: {}\n", yaml_text(set.path), example_kind_name(set.kind));
    if (set.weight > 0) text += fmt::format("    weight: {}\n", set.weight);
    if (set.learns_prompts) text += "    train_on_inputs: true\n";
    if (!set.columns.empty()) text += "    columns:\n";
    for (const auto& [name, field] : set.columns) text += fmt::format("      {}: {}\n", name, yaml_text(field));
  }
  return text;
}

std::string yaml_lora(const TrainSettings& s) {
  if (s.lora.empty()) return "";
  const LoraSettings lora = parse_lora(s.lora);
  std::string text = fmt::format("lora:\n  dropout: {}\n", lora.dropout);
  if (!s.lora_from.empty())
    text += fmt::format("  from: {}\n", yaml_text(s.lora_from));
  else
    text += fmt::format("  r: {}\n  alpha: {}\n  target_modules: [{}]\n", lora.rank, lora.alpha,
                        fmt::join(lora.targets, ", "));
  if (lora.dora) text += "  use_dora: true\n";
  if (lora.rslora) text += "  use_rslora: true\n";
  if (!s.base_type.empty()) text += fmt::format("  base: {}\n", s.base_type);
  return text;
}

}  // namespace

std::string yaml_text(const std::string& text) { return boost::json::serialize(boost::json::string(text)); }

std::string optimizer_text(const TrainSettings& s) {
  NamedText text(optimizer_rows(), s.optimizer);
  text.add("weight_decay", "weight_decay", s.weight_decay);
  text.add("adam_beta1", "beta1", s.beta1);
  text.add("adam_beta2", "beta2", s.beta2);
  text.add("adam_epsilon", "epsilon", s.epsilon);
  return text.text();
}

std::string schedule_text(const TrainSettings& s) {
  NamedText text(schedule_rows(), s.schedule);
  text.add("warmup_steps", "warmup", above_zero(s.warmup));
  text.add("min_lr_ratio", "final", above_zero(s.final_rate));
  text.add("decay_steps", "decay", s.decay);
  return text.text();
}

std::string train_settings_text(const TrainSettings& s) {
  constexpr const char* kTooLong[] = {"error", "skip", "truncate", "split"};
  std::string text;
  const auto line = [&](const char* key, const std::string& value) { text += fmt::format("{}: {}\n", key, value); };
  const auto given = [&](const char* key, const std::string& value) {
    if (!value.empty()) line(key, yaml_text(value));
  };
  const auto number = [&](const char* key, const std::optional<double>& value) {
    if (value) line(key, fmt::format("{}", *value));
  };
  given("model", s.model);
  given("model_dsl", s.model_dsl);
  const auto map = [&](const char* key, const std::string& settings) {
    std::string entries = settings;
    for (char& c : entries)
      if (c == '=') c = ':';
    size_t at = 0;
    while ((at = entries.find(':', at)) != std::string::npos) entries.insert(++at, " ");
    if (!entries.empty()) line(key, "{" + entries + "}");
  };
  map("model_settings", s.model_settings);
  if (!s.special_tokens.empty()) {
    const AddedTokens tokens = added_tokens_of(s.special_tokens);
    text += "special_tokens:\n";
    for (const auto& [role, token] : tokens.roles) text += fmt::format("  {}: {}\n", role, yaml_text(token));
    if (!tokens.texts.empty()) text += "  additional:\n";
    for (const std::string& token : tokens.texts) text += fmt::format("    - {}\n", yaml_text(token));
  }
  text += yaml_lora(s) + yaml_losses(s);
  given("recompute", s.recompute);
  given("tokenizer", s.corpus.tokenizer);
  given("chat_template", s.corpus.chat_template);
  text += yaml_datasets("datasets", s.corpus.datasets) + yaml_datasets("validation_datasets", s.validation_sets);
  if (s.corpus.validation > 0) number("validation", s.corpus.validation);
  line("sequence_len", std::to_string(s.corpus.window));
  if (s.sample_packing) line("sample_packing", *s.sample_packing ? "true" : "false");
  line("too_long", kTooLong[static_cast<int>(s.corpus.too_long)]);
  line("skip_malformed", s.corpus.skip_malformed ? "true" : "false");
  line("shuffle", s.shuffle ? "true" : "false");
  line("micro_batch_size", std::to_string(s.batch));
  line("gradient_accumulation_steps", std::to_string(s.accumulate));
  if (s.steps) line("max_steps", std::to_string(*s.steps));
  number("num_epochs", s.epochs);
  number("learning_rate", s.learning_rate);
  line("lr_scheduler", s.schedule);
  if (s.warmup >= 1) line("warmup_steps", fmt::format("{:.0f}", s.warmup));
  if (s.warmup > 0 && s.warmup < 1) number("warmup_ratio", s.warmup);
  number("min_lr_ratio", s.final_rate);
  number("decay_steps", s.decay);
  const size_t open = s.optimizer.find('(');
  line("optimizer", open == std::string::npos ? s.optimizer : s.optimizer.substr(0, open) + "_8bit");
  number("weight_decay", s.weight_decay);
  number("adam_beta1", s.beta1);
  number("adam_beta2", s.beta2);
  number("adam_epsilon", s.epsilon);
  number("max_grad_norm", s.clip);
  line("precision", s.precision);
  line("seed", std::to_string(s.seed));
  if (s.evaluate_every > 0) line("eval_steps", std::to_string(s.evaluate_every));
  if (s.validation_rows > 0) line("eval_samples", std::to_string(s.validation_rows));
  if (s.save_every > 0) line("save_steps", std::to_string(s.save_every));
  line("save_total_limit", std::to_string(s.keep));
  if (!s.samples.prompts.empty()) {
    std::string prompts;
    for (const std::string& prompt : s.samples.prompts) prompts += (prompts.empty() ? "" : ", ") + yaml_text(prompt);
    const std::string every = s.samples.every > 0 ? fmt::format("every: {}, ", s.samples.every) : "";
    line("samples", fmt::format("{{{}prompts: [{}], tokens: {}, temperature: {:g}}}", every, prompts, s.samples.tokens,
                                s.samples.temperature));
  }
  if (s.keep_best > 0) line("save_best_limit", std::to_string(s.keep_best));
  if (s.guard)
    line("loss_guard", fmt::format("{{deviations: {:g}, patience: {}, then: {}}}", s.guard->deviations,
                                   s.guard->patience, s.guard->returns ? "checkpoint" : "stop"));
  line("logging_steps", std::to_string(s.log_every));
  if (s.patience) line("early_stopping_patience", std::to_string(*s.patience));
  line("output_dir", yaml_text(s.output));
  for (size_t i = 0; i < s.stop_when.size(); ++i)
    text += fmt::format("{}  - {}\n", i == 0 ? "stop_when:\n" : "", yaml_text(s.stop_when[i]));
  return text;
}

}  // namespace harmonics::engine::cli
