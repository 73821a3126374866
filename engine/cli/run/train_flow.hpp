// A configuration of `train` as a flow and the options of its run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/cli/options/options.hpp"
#include "engine/cli/run/train_settings.hpp"
#include "engine/flow/flow.hpp"

namespace harmonics::engine::cli {

// With its parents. Throws ErrorKind::Output.
void create_output_folder(const std::string& path);

struct TrainPlan {
  std::shared_ptr<const Corpus> corpus, validation;  // null: the data are a stream, or there are none
  int64_t validation_rows = 0;                       // of each validation; 0: there is none
  bool validates_live = false;                       // each on the next rows of a stream
  // 0: of a stream whose end is not known, and of its validations
  int64_t rows_of_step = 0, steps_of_epoch = 0, steps = 0, evaluate_every = 0;
  CorpusTokenizer tokenizer;
  Flow flow;
  Options options;  // of the run
};

// Reads the data and lays out the run. `folder`: of the configuration, which the flow then lies in. `write`: the output
// folder is created, with the tokenizer and the descriptions of the data that the run's addresses name; otherwise no
// file is written, and the addresses hold the descriptions. Throws what reading the data throws, ErrorKind::Usage for
// what a stream cannot have, and ErrorKind::Output.
TrainPlan plan_training(const TrainSettings& settings, const std::string& folder, const Options& given, bool write);

// One step on a batch that the loss guard left out, a file of `left_out`, with the newest weights in the output folder.
// Nothing of it is kept. Throws what reading the file throws, and ErrorKind::Stream for a file of another run.
TrainPlan plan_replay(const TrainSettings& settings, const std::string& folder, const Options& given,
                      const std::string& batch);

}  // namespace harmonics::engine::cli
