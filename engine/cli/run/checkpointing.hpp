// The checkpoints of one command: their folder, the checkpoint to resume from, and how to resume later.
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
  // Creates the folder, reads the checkpoint that --resume names, and prints notes about it.
  explicit Checkpointing(const Options& options);

  Checkpointer* writer() { return writer_ ? &*writer_ : nullptr; }
  // Null: the run starts from the beginning.
  const Checkpoint* from() const { return from_ ? &*from_ : nullptr; }
  // Returns the checkpoint to resume from. Called once.
  Checkpoint take() { return *std::exchange(from_, std::nullopt); }

  // Called when a run was stopped by something temporary. Returns whether there is a checkpoint to resume from, and
  // prints how.
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
