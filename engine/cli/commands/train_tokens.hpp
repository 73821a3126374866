// Special tokens of a configuration of `train`: a copy of the model and its tokenizer that have them.
#pragma once

#include <string>

#include "engine/cli/run/train_settings.hpp"

namespace harmonics::engine::cli {

// The settings with the model and the tokenizer that have settings.special_tokens, which are written to a folder: that
// of the output, or, for a dry run, one that is removed with this object. A copy that a run to be resumed has made is
// used again.
class TokensAdded {
 public:
  TokensAdded(const TrainSettings& settings, bool keeps, bool quiet);
  ~TokensAdded();
  TokensAdded(const TokensAdded&) = delete;
  TokensAdded& operator=(const TokensAdded&) = delete;

  const TrainSettings& settings() const { return settings_; }

 private:
  explicit TokensAdded(const TrainSettings& settings) : settings_(settings) {}
  void add_to_model(bool quiet);
  void add_to_tokenizer();

  TrainSettings settings_;
  std::string folder_;
  bool temporary_ = false;
};

}  // namespace harmonics::engine::cli
