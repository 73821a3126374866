#include "engine/cli/run/checkpointing.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include "engine/cli/terminal/exit_codes.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/run/crash_report.hpp"
#include "engine/cli/run/stop_signals.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

bool is_folder(const std::string& path) {
  struct stat state {};
  return ::stat(path.c_str(), &state) == 0 && S_ISDIR(state.st_mode);
}

}  // namespace

Checkpointing::Checkpointing(const Options& options)
    : command_(options.command_line), folder_in_command_(!options.checkpoint.empty()) {
  std::string folder = options.checkpoint;
  if (folder.empty() && options.resume && is_folder(*options.resume)) folder = *options.resume;
  if (folder.empty() && options.resume && options.resume->empty())
    throw Error(ErrorKind::Usage, "--resume needs a checkpoint", {},
                {"give --checkpoint DIR, or --resume DIR, or --resume FILE"});
  if (folder.empty() && (options.every || options.keep || options.keep_best))
    throw Error(ErrorKind::Usage,
                fmt::format("{} has no effect without --checkpoint DIR", options.every  ? "--every"
                                                                         : options.keep ? "--keep"
                                                                                        : "--keep-best"));
  if (options.keep_best && options.validations.empty())
    throw Error(ErrorKind::Usage, "--keep-best has no effect without validation data", {},
                {"give it: --validate NAME=ADDRESS for every producer"});
  if (!folder.empty()) {
    writer_.emplace(folder, parse_interval(options.every.value_or("5m")),
                    static_cast<size_t>(options.keep.value_or(3)));
    if (options.keep_best) writer_->keep_best(static_cast<size_t>(*options.keep_best));
    if (!options.resume && !writer_->last().empty())
      throw Error(ErrorKind::Usage, fmt::format("'{}' holds the checkpoints of a run", folder), {},
                  {"add --resume to continue that run, or use another directory"});
  }
  if (options.resume) read(options, folder);
  if (writer_)
    CrashReport::set_resume_command(writer_->folder().path(),
                                    resuming_line(command_, folder_in_command_ ? "" : writer_->folder().path()));
}

void Checkpointing::read(const Options& options, const std::string& folder) {
  const std::string& path = options.resume->empty() ? folder : *options.resume;
  std::vector<std::string> notes;
  if (!options.resume->empty() && !is_folder(path))
    from_ = read_checkpoint(path);
  else
    from_ = CheckpointFolder(path).newest(notes);
  for (const std::string& note : notes) print_note(note);
  if (!from_) {
    if (path != folder)
      throw Error(ErrorKind::NoInput, fmt::format("there is no checkpoint in '{}'", path), {},
                  {"'harmonics ckpt list DIR' lists those of a folder"});
    if (!options.quiet) print_note(fmt::format("there is no checkpoint in '{}' yet: starting at the beginning", path));
    return;
  }
  if (writer_) writer_->continue_from(*from_);
  if (!options.quiet)
    say(fmt::format("resuming from {}: step {}, {}", from_->path, thousands(from_->state.step),
                    from_->state.position()));
}

bool Checkpointing::print_resume_command() const {
  if (!writer_ || writer_->last().empty() || ::access(writer_->last().c_str(), R_OK) != 0) return false;
  if (!writer_->not_resumable().empty()) {
    say(fmt::format("its weights are in {}: --weights {}", writer_->last(), quoted(writer_->last())));
    return false;
  }
  say("to continue:  " + resuming_line(command_, folder_in_command_ ? "" : writer_->folder().path()));
  return true;
}

void Checkpointing::leave(CycleRuntime* runtime, int signal) {
  int code = 128 + signal;
  try {
    if (runtime) runtime->checkpoint_now();
  } catch (const Error& e) {
    print_error(e);
    code = kCannotWrite;
  }
  const bool resumable = print_resume_command();
  LeftBehind::remove();
  ::_exit(code == kCannotWrite && resumable ? kResumable : code);
}

}  // namespace harmonics::engine::cli
