// What the second signal leaves of a run that writes no checkpoints: its weights, in the file of --save or as a copy.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "engine/cli/options/options.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

class LastWeights {
 public:
  // `graph`: the name of the graph, for the copy. `options` must outlive this.
  LastWeights(const Options& options, std::string graph) : options_(options), graph_(std::move(graph)) {}

  // Sets the weights after a cycle that trained. They view memory of the graph, which no step changes once a signal
  // has arrived.
  void set(TensorFile weights);
  // Runs `save`, by which the run saves its weights itself. leave() waits for it, prints the line that it returns
  // (empty: none) and writes nothing.
  void save(const std::function<std::string()>& save);

  // Handles a second signal: writes the weights, unless the run has saved them, and ends the process. `runtime`: the
  // running cycle, or null.
  [[noreturn]] void leave(CycleRuntime* runtime, int signal);

 private:
  void write(const TensorFile& weights) const;

  const Options& options_;
  const std::string graph_;
  std::mutex access_;
  std::optional<std::string> saved_;  // the line about it
  std::optional<TensorFile> ended_;   // after the last cycle that trained
};

}  // namespace harmonics::engine::cli
