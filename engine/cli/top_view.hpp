// What 'harmonics top' shows, as lines of text: no terminal here.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/object.hpp>

namespace harmonics::cli {

// What is known of a run. Bounded, however long it is watched.
struct TopFacts {
  static constexpr size_t kMostPoints = 1024, kMostLines = 64;

  boost::json::object status, layers;             // of /v1/status and /v1/layers; empty: not known
  std::deque<std::pair<int64_t, double>> losses;  // step and loss
  std::deque<std::string> lines;                  // of the log
  std::string said;                               // the answer to the last key
  double silent = 0;                              // seconds since the run last answered

  // Of /v1/history; then of one status after the other, those of another cycle or an earlier step in place of what was
  // there.
  void take_history(const boost::json::object& history);
  void take_status(boost::json::object now);
  void take_log(const boost::json::object& log);

 private:
  void add(int64_t step, double loss);
};

struct TopLook {
  size_t width = 100, height = 0;  // 0: as many lines as it takes
  bool colours = false, keys = false;
};

// Each no wider than `width`.
std::vector<std::string> top_view(const TopFacts& facts, const TopLook& look);

// Eight heights of a block for each of the `width` parts of the values; NaN is a blank.
std::string spark_text(const std::vector<double>& values, size_t width);

}  // namespace harmonics::cli
