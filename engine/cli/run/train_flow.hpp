// Converts a configuration of `train` into a flow and the options of its run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/cli/options/options.hpp"
#include "engine/cli/run/train_settings.hpp"
#include "engine/flow/flow.hpp"

namespace harmonics::engine::cli {

// Creates a folder and its parents. Throws ErrorKind::Output.
void create_output_folder(const std::string& path);

// Throws ErrorKind::Usage if a run that is not resumed would write to the folder of another one.
void expect_unused(const TrainSettings& settings);

struct TrainPlan {
  std::shared_ptr<const Corpus> corpus, validation;  // null: a live stream; no validation
  int64_t validation_rows = 0;                       // per validation; 0: no validation
  bool validates_live = false;                       // each validation reads the next rows of a stream
  // 0 for a stream without a known end, and for its validations.
  int64_t rows_of_step = 0, steps_of_epoch = 0, steps = 0, evaluate_every = 0;
  int64_t steps_of_pass = 0;  // of the flow; independent of `steps`, so that a resumed run can have more steps
  CorpusTokenizer tokenizer;
  Flow flow;
  Options options;  // of the run
};

// Reads the data and plans the run. `folder` is that of the configuration, and becomes that of the flow. `write`
// creates the output folder with the tokenizer and the descriptions of the data, which the run's addresses name;
// otherwise no file is written and the addresses contain the descriptions. Throws the errors of reading the data,
// ErrorKind::Usage for settings that a stream does not support, and ErrorKind::Output.
TrainPlan plan_training(const TrainSettings& settings, const std::string& folder, const Options& given, bool write);

// Plans one step on a batch that the loss guard skipped, a file of `skipped_batches`, with the newest weights in the
// output folder. Its results are not saved. Throws the errors of reading the file, and ErrorKind::Stream for a file of
// another run.
TrainPlan plan_replay(const TrainSettings& settings, const std::string& folder, const Options& given,
                      const std::string& batch);

}  // namespace harmonics::engine::cli
