// Saves the weights at the second signal if the run writes no checkpoints: to the file of --save, or as a copy.
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
  // `graph` is the graph's name for the copy. `options` must outlive the object.
  LastWeights(const Options& options, std::string graph) : options_(options), graph_(std::move(graph)) {}

  // Sets the weights after a cycle that trained. They are views of the graph's memory, which no step changes after a
  // signal.
  void set(TensorFile weights);
  // Calls `save`, which saves the weights of the run. leave() waits for it, prints the line that it returns unless that
  // is empty, and then writes nothing itself.
  void save(const std::function<std::string()>& save);

  // Handles a second signal: writes the weights, unless the run has saved them, and ends the process. `runtime` is the
  // running cycle, or null.
  [[noreturn]] void leave(CycleRuntime* runtime, int signal);

 private:
  void write(const TensorFile& weights) const;

  const Options& options_;
  const std::string graph_;
  std::mutex access_;
  std::optional<std::string> saved_;  // the line returned by `save`
  std::optional<TensorFile> ended_;   // weights after the last cycle that trained
};

}  // namespace harmonics::engine::cli
