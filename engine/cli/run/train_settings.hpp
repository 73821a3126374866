// The configuration of `harmonics train`: YAML with the keys that trainers of language models use.
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

struct TrainSettings {
  std::string model, model_dsl;
  std::string model_settings;  // "num_layers=2, hidden_size=64"
  std::string lora;            // settings of an adapter; "": all weights are trained
  std::string base_type;       // of frozen weights; "": as in the file
  std::string recompute;
  CorpusOptions corpus;
  std::vector<DatasetOptions> validation_sets;  // of files of their own
  std::optional<bool> sample_packing;
  int64_t batch = 8, accumulate = 1;
  std::optional<int64_t> steps;
  double epochs = 1;
  double learning_rate = 1e-3;
  std::string optimizer = "adamw", schedule = "cosine";
  std::optional<double> weight_decay, beta1, beta2, epsilon;
  double warmup = 0;  // steps; below 1 a part of the run
  double final_rate = 0;
  std::optional<double> decay;  // of wsd
  double clip = 1;
  std::string precision = "fp32";
  int64_t evaluate_every = 0;  // steps; 0: once in each epoch
  int64_t save_every = 0;      // steps; 0: every five minutes
  int64_t keep = 3, keep_best = 0, log_every = 10;
  std::optional<LossGuardSettings> guard;  // without the folder
  SampleSettings samples;                  // without the tokenizer; every 0: with each validation
  int64_t seed = 0;
  bool shuffle = true, resume = false;
  std::optional<int64_t> patience;
  std::vector<std::string> stop_when;  // "val.loss<1.5"
  std::string output = "trained";
};

// One key of the configuration. Checks, help and the reference come from these rows.
struct TrainKey {
  const char* name;
  std::vector<const char*> aliases;  // of other programs
  const char* values;                // "a whole number from 1"
  const char* initial;               // "": none
  const char* text;
  // Reads the value; wrong ones are problems.
  std::function<void(TrainSettings&, const document::Node&, document::Problems&)> take;
};
const std::vector<TrainKey>& train_keys();
std::vector<std::string> train_key_names();  // with those of other programs
std::vector<TrainKey> train_model_keys();    // the part of them about the model
std::vector<TrainKey> train_watch_keys();    // about what is watched during the run
// The keys of a data set.
std::vector<std::string> train_dataset_keys();

// Reads a configuration, with `set` ("key=value") in place of its values. Throws ErrorKind::Syntax with all errors, or
// ErrorKind::Usage for a malformed `set`.
TrainSettings read_train_settings(const document::Document& config, const std::vector<std::string>& set);

// The settings after all defaults, as a configuration that gives the same run.
std::string train_settings_text(const TrainSettings& settings);

// "adamw(weight_decay=0.1, beta2=0.95)" and "cosine(warmup=100, final=0.1)". Throws ErrorKind::Usage for a setting that
// the optimizer or schedule does not have.
std::string optimizer_text(const TrainSettings& settings);
std::string schedule_text(const TrainSettings& settings);

}  // namespace harmonics::engine::cli
