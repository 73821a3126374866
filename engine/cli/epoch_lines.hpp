// A line for every epoch. On a terminal those that follow each other within a fifth of a second are left out, but the
// first and the last.
#pragma once

#include <optional>
#include <string>

#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::cli {

class EpochLines {
 public:
  EpochLines();
  void show(const EpochReport& epoch, bool constant_rate);
  // The last epoch, when it was left out.
  void end();

 private:
  void print_line(const std::string& text);
  int width_;  // 0: no terminal
  bool began_ = false;
  double since_ = 0;  // seconds of epochs since the last line
  std::optional<std::string> left_out_;
};

}  // namespace harmonics::cli
