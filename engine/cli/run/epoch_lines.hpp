// Prints a line for every epoch. On a terminal, lines within a fifth of a second of the last one are skipped, except
// the first and the last epoch.
#pragma once

#include <optional>
#include <string>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

class EpochLines {
 public:
  // `tokens`: in a sample of a language model, for rates in tokens; 0: other samples. `perplexity`: of such a model,
  // beside its validation loss.
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
