// Adds the special tokens in a configuration of `train` to a copy of the model and its tokenizer.
#pragma once

#include <optional>
#include <string>

#include "engine/base/scratch_folder.hpp"
#include "engine/cli/run/train_settings.hpp"

namespace harmonics::engine::cli {

// Writes a copy of model and tokenizer with settings.special_tokens, and has the settings that refer to it. The copy is
// in the output folder, or, for a dry run, in a temporary folder that the destructor removes. A resumed run uses the
// copy of the original run.
class TokensAdded {
 public:
  TokensAdded(const TrainSettings& settings, bool keeps, bool quiet);
  TokensAdded(const TokensAdded&) = delete;
  TokensAdded& operator=(const TokensAdded&) = delete;

  const TrainSettings& settings() const { return settings_; }

 private:
  void add_to_model(bool quiet);
  void add_to_tokenizer();

  TrainSettings settings_;
  std::string folder_;
  std::optional<ScratchFolder> temporary_;  // of a dry run
};

}  // namespace harmonics::engine::cli
