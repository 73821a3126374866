// The checkpoints of one command: where they go, what it goes on from, how it is resumed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/cli/options.hpp"

namespace harmonics::cli {

class Checkpointing {
 public:
  // Takes the folder and reads what --resume names; prints what there is to know about it.
  explicit Checkpointing(const Options& options);

  Checkpointer* writer() { return writer_ ? &*writer_ : nullptr; }
  // Null: the run begins at the beginning.
  const Checkpoint* from() const { return from_ ? &*from_ : nullptr; }
  // What it goes on from, once.
  Checkpoint take() { return *std::exchange(from_, std::nullopt); }

  // Something stopped the run that will not stop it for ever: is there a checkpoint to go on from? Says how.
  bool tell_how_to_go_on() const;
  // A second signal: a checkpoint now, if a cycle runs, and out.
  [[noreturn]] void leave(CycleRuntime* runtime, int signal);

 private:
  void read(const Options& options, const std::string& folder);

  std::vector<std::string> command_;
  bool folder_in_command_;
  std::optional<Checkpoint> from_;
  std::optional<Checkpointer> writer_;
};

}  // namespace harmonics::cli
