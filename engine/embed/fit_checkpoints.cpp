#include "engine/embed/fit_checkpoints.hpp"

#include <filesystem>
#include <utility>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

std::string text_of(const char* text) { return text ? text : ""; }

}  // namespace

FitCheckpoints::FitCheckpoints(const hx_fit_settings& settings, const BoundGraph& graph) {
  const std::string folder = text_of(settings.checkpoint), resume = text_of(settings.resume);
  if (folder.empty() && (settings.every || settings.keep > 0))
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' has no effect without a folder for checkpoints", settings.every ? "every" : "keep"));
  if (!folder.empty()) {
    const std::string every = settings.every ? settings.every : "5m";
    writer_.emplace(folder, parse_interval(every), settings.keep > 0 ? static_cast<size_t>(settings.keep) : 3);
    if (resume.empty() && !writer_->last().empty())
      throw Error(ErrorKind::Usage, fmt::format("'{}' holds the checkpoints of a run", folder), {},
                  {"to continue that run, name it as 'resume' too; or use another directory"});
  }
  if (!resume.empty()) read(resume, folder);
  expect_training(graph);
}

void FitCheckpoints::read(const std::string& path, const std::string& folder) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none) || path == folder)
    from_ = CheckpointFolder(path).newest(notes_);
  else
    from_ = read_checkpoint(path);
  if (!from_ && path != folder) throw Error(ErrorKind::NoInput, fmt::format("there is no checkpoint in '{}'", path));
  if (!from_) notes_.push_back(fmt::format("there is no checkpoint in '{}' yet: starting at the beginning", path));
  if (from_ && writer_) writer_->continue_from(*from_);
}

void FitCheckpoints::expect_training(const BoundGraph& graph) const {
  const int cycles = static_cast<int>(graph.graph().cycles.size());
  if (from_ && from_->state.cycle >= cycles)
    throw Error(ErrorKind::Weights, fmt::format("'{}' was written in cycle {}; '{}' has {}", from_->path,
                                                from_->state.cycle + 1, graph.graph().name, cycles));
  for (int cycle = 0; cycle < cycles; ++cycle)
    if (graph.graph().trains(cycle)) return;
  if (from_ || writer_)
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' does not train: it has nothing to keep in a checkpoint", graph.graph().name));
}

void FitCheckpoints::attach(CycleRuntime& runtime) {
  if (writer_) runtime.set_checkpoints(&*writer_);
  if (from_) runtime.resume(*std::exchange(from_, std::nullopt));
}

}  // namespace harmonics::engine
