// Formats the content of 'harmonics top' as lines of text.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/object.hpp>

namespace harmonics::engine::cli {

// Data of a run, in bounded memory.
struct TopFacts {
  static constexpr size_t kMostPoints = 1024, kMostLines = 64;

  boost::json::object status, layers;             // of /v1/status and /v1/layers; empty: unknown
  std::deque<std::pair<int64_t, double>> losses;  // step and loss
  std::deque<std::string> lines;                  // of the log
  std::string said;                               // the answer to the last key
  double silent = 0;                              // seconds since the run last answered

  // Take the answer of /v1/history, then successive statuses. A status of another cycle or an earlier step replaces the
  // old points.
  void take_history(const boost::json::object& history);
  void take_status(boost::json::object now);
  void take_log(const boost::json::object& log);

 private:
  void add(int64_t step, double loss);
};

struct TopLook {
  size_t width = 100, height = 0;  // 0: as many lines as needed
  bool colours = false, keys = false;
};

// Returns lines of at most `width` columns.
std::vector<std::string> top_view(const TopFacts& facts, const TopLook& look);

// Returns a sparkline of `width` block characters with eight heights. NaN is a blank.
std::string spark_text(const std::vector<double>& values, size_t width);

}  // namespace harmonics::engine::cli
