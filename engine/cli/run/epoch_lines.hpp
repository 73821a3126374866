// Prints a line per epoch. On a terminal, epochs within a fifth of a second after the last line are skipped, except the
// first and the last epoch.
#pragma once

#include <optional>
#include <string>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

class EpochLines {
 public:
  // `tokens` is the number of tokens in a sample of a language model, for rates in tokens; 0 for other samples.
  // `perplexity` shows the perplexity of a language model beside its validation loss.
  explicit EpochLines(int64_t tokens = 0, bool perplexity = true);
  void show(const EpochReport& epoch, bool constant_rate);
  // Prints the last epoch if it was skipped.
  void end();

 private:
  void print_line(const std::string& text);
  int64_t tokens_;
  bool perplexity_;
  int width_;  // 0: not a terminal
  bool began_ = false;
  double since_ = 0;  // seconds of epochs since the last printed line
  std::optional<std::string> left_out_;
};

}  // namespace harmonics::engine::cli
