// The command line as plain data. Parsing (CLI11) lives in options.cpp alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/harmonic_graph.hpp"

namespace harmonics::cli {

struct Options {
  std::string verb;
  std::vector<std::string> files;                       // positional
  std::vector<std::string> producers, consumers, tests; // [NAME=]ADDRESS
  std::vector<std::string> plugins;
  RunSettings run;
  std::string graph;                                    // --graph NAME
  std::string weights, save, report;
  bool json = false, quiet = false;
  // explain
  std::vector<std::string> show;                        // flow widths program kernels memory; empty: flow and widths
  std::string after;                                    // pass name, or "all"
  bool dot = false, inference = false;
  // profile and bench
  int64_t cycle = 1;                                    // from 1
  std::string trace;
  std::vector<int64_t> batches{1, 64, 256};
  std::vector<int> threads;                             // empty: one, and all the machine has
  double seconds = 1;                                   // of one measurement
  // infer
  std::string prompt;
  bool prompt_given = false;
  int64_t generate = 400;
  double temperature = 0.8;
};

// Parses argv. When there is nothing to run (help, wrong use) prints what there is to say and returns the exit code.
std::optional<int> parse_options(int argc, char** argv, Options& options);

}  // namespace harmonics::cli
