// The configuration of `harmonics train`: YAML with the usual keys of trainers for language models.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dsl/document/fields.hpp"
#include "engine/bound/loss_guard.hpp"
#include "engine/cli/options/sample_settings.hpp"
#include "engine/corpus/corpus.hpp"

namespace harmonics::engine::cli {

// Settings for learning from chosen and rejected answers.
struct PreferenceSettings {
  double beta = 0.1;
  std::string loss = "sigmoid";
  double label_smoothing = 0;
  std::string reference;  // reference model; "": the trained model before training
};

// Settings for learning from the scores of another model.
struct DistillationSettings {
  std::string teacher;
  double temperature = 1, beta = 0;
  double share = 0.5;  // share of the loss; the rest is cross entropy
};

struct TrainSettings {
  std::string model, model_dsl;
  std::string model_settings;               // "num_layers=2, hidden_size=64"
  std::vector<std::string> special_tokens;  // added tokens: "TEXT", "eos_token=TEXT"
  std::string lora;                         // settings of an adapter; "": all weights are trained
  std::string lora_from;                    // path of an adapter to train further; "": a new one
  std::string base_type;                    // type of frozen weights; "": as in the file
  std::string recompute;
  CorpusOptions corpus;
  std::vector<DatasetOptions> validation_sets;  // separate files
  std::optional<bool> sample_packing;
  int64_t batch = 8, accumulate = 1;
  std::optional<int64_t> steps;
  double epochs = 1;
  double learning_rate = 1e-3;
  std::string optimizer = "adamw", schedule = "cosine";
  std::optional<double> weight_decay, beta1, beta2, epsilon;
  double warmup = 0;  // steps; below 1: a fraction of the run
  double final_rate = 0;
  std::optional<double> decay;  // of the schedule wsd
  double clip = 1;
  std::string precision = "fp32";
  int64_t evaluate_every = 0;   // steps; 0: once per epoch
  int64_t validation_rows = 0;  // per validation; 0: all
  int64_t save_every = 0;       // steps; 0: every five minutes
  int64_t keep = 3, keep_best = 0, log_every = 10;
  std::optional<LossGuardSettings> guard;  // without the folder
  std::optional<PreferenceSettings> preferences;
  std::optional<DistillationSettings> distillation;
  SampleSettings samples;  // without the tokenizer; `every` 0: at each validation
  int64_t seed = 0;
  bool shuffle = true, resume = false;
  std::optional<int64_t> patience;
  std::vector<std::string> stop_when;  // "val.loss<1.5"
  std::string output = "trained";
  std::vector<std::string> notes;  // about the configuration, for the user
};

// A key of the configuration. Checks, help and the reference documentation are generated from these rows.
struct TrainKey {
  const char* name;
  std::vector<const char*> aliases;  // names in other programs
  const char* values;                // "a whole number from 1"
  const char* initial;               // "": none
  const char* text;
  // Reads the value. Invalid values are added to the problems.
  std::function<void(TrainSettings&, const document::Node&, document::Problems&)> take;
};
const std::vector<TrainKey>& train_keys();
std::vector<std::string> train_key_names();  // including names in other programs
std::vector<TrainKey> train_model_keys();    // the keys of the model
std::vector<TrainKey> train_watch_keys();    // the keys of what is watched during the run
std::vector<TrainKey> train_loss_keys();     // the keys of losses
// Replaces keys of other programs by those above: "adapter: lora" and "lora_r: 8" by "lora: {r: 8}". Adds notes about
// keys without effect.
document::Node in_own_keys(const document::Node& root, document::Problems& problems, std::vector<std::string>& notes);
// Returns a value of --set for a key of another program or a setting of the model: "lora={r: 8}" for lora_r; "": not
// such a key.
std::string own_setting(const std::string& key, const std::string& value);
const TrainKey* find_train_key(const std::string& name);  // by its name or an alias; null if there is none

// Collects errors of a configuration, of --set, and of the files that they name.
class TrainProblems {
 public:
  // Both must outlive the object.
  TrainProblems(const document::Document& config, const std::vector<std::string>& set);

  document::Problems& file() { return file_; }
  const document::Node& config() const { return config_.root; }
  // Adds a problem at the first key of this list that is given in the configuration or by --set. Ignored if a key of
  // the list already has an error.
  void add(const std::vector<std::string>& keys, const std::string& what, const std::string& remedy,
           ErrorKind kind = ErrorKind::Syntax);
  void add(const std::vector<std::string>& keys, const Error& error);
  // Adds an error of the optimizer or the schedule, which may begin with a key in quotes.
  void add_update(const Error& error);
  void add_flag(const Error& error) { flags_.errors.push_back(error); }
  // Adds errors of other files.
  void add_texts(const std::vector<TextErrors>& texts);
  void doubt(const std::string& key) { file_.doubt(key); }
  bool doubts(const std::string& key) const { return file_.doubted().count(key) != 0; }
  void throw_any();  // throws all errors; returns if there are none

 private:
  const document::Document& config_;
  const std::vector<std::string>& set_;
  document::Problems file_;
  TextErrors flags_;
  std::vector<TextErrors> others_;
};

// Adds errors of combinations of keys.
void check_train_settings(const TrainSettings& settings, TrainProblems& problems);
// Adds errors for missing files, and errors in the `.ndsl` file. Names of models may be relative to `folder`.
void check_train_files(const TrainSettings& settings, const std::string& folder, TrainProblems& problems);
// Sets the number of tokens in a row, if the configuration has none, to 512 or to the shortest context of the models,
// with a note. Adds errors if it exceeds a context.
void settle_window(TrainSettings& settings, const std::string& folder, TrainProblems& problems);
// Returns the keys of a data set.
std::vector<std::string> train_dataset_keys();

// Reads a configuration, whose values `set` ("key=value") overrides. Throws all errors of the configuration, of `set`
// and of the files that they name. `folder` is that of the configuration.
TrainSettings read_train_settings(const document::Document& config, const std::vector<std::string>& set,
                                  const std::string& folder);

// Formats the complete settings as a configuration that gives the same run.
std::string train_settings_text(const TrainSettings& settings);

// Return "adamw(weight_decay=0.1, beta2=0.95)" and "cosine(warmup=100, final=0.1)". Throw ErrorKind::Usage for a
// setting that the optimizer or schedule does not have.
std::string optimizer_text(const TrainSettings& settings);
std::string schedule_text(const TrainSettings& settings);
// Return the losses of the flow's tap, and their keys in the configuration.
std::string train_losses_text(const TrainSettings& settings);
std::string yaml_losses(const TrainSettings& settings);
// Returns the text as a JSON string.
std::string yaml_text(const std::string& text);

}  // namespace harmonics::engine::cli
