// The checkpoints of one command: the folder, the checkpoint to resume from, and the command to resume later.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cli/options/options.hpp"

namespace harmonics::engine {
class CycleRuntime;
}

namespace harmonics::engine::cli {

class Checkpointing {
 public:
  // Creates the folder, reads the checkpoint of --resume, and prints notes about it.
  explicit Checkpointing(const Options& options);

  Checkpointer* writer() { return writer_ ? &*writer_ : nullptr; }
  // Returns the checkpoint to resume from; null if the run starts from the beginning.
  const Checkpoint* from() const { return from_ ? &*from_ : nullptr; }
  // Moves the checkpoint out. May be called once.
  Checkpoint take() { return *std::exchange(from_, std::nullopt); }

  // Prints the command to resume an interrupted run, or the file of its weights if it cannot be resumed. Returns
  // whether it can be resumed.
  bool print_resume_command() const;
  // Handles a second signal: writes a checkpoint if a cycle runs, and ends the process.
  [[noreturn]] void leave(CycleRuntime* runtime, int signal);

 private:
  void read(const Options& options, const std::string& folder);

  std::vector<std::string> command_;
  bool folder_in_command_;
  std::optional<Checkpoint> from_;
  std::optional<Checkpointer> writer_;
};

}  // namespace harmonics::engine::cli
