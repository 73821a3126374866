// The functions of the verbs. Their table is in verbs.cpp.
#pragma once

#include <functional>

#include "engine/checkpoint/checkpoint_folder.hpp"
#include "engine/cli/options/command_table.hpp"
#include "engine/cli/options/options.hpp"
#include "engine/cli/terminal/exit_codes.hpp"

namespace harmonics::engine::cli {

int run_command(const Options& options);
// Called during a run. Both may throw, which ends it.
struct RunEvents {
  std::function<void(const Checkpoint&)> resuming;  // before the state of this checkpoint is restored
  std::function<void()> started;                    // before the first step, after a checkpoint was restored
};
// Runs a flow like run_command(), which reads one from a file.
int run_flow(const Flow& flow, const Options& options, const RunEvents& events = {});
int train_command(const Options& options);
int tokenize_command(const Options& options);
int infer_command(const Options& options);
int generate_command(const Options& options);
int embed_command(const Options& options);
int chat_command(const Options& options);
int serve_command(const Options& options);
int ctl_command(const Options& options);
int top_command(const Options& options);
int tap_command(const Options& options);
int validate_command(const Options& options);
int explain_command(const Options& options);
int profile_command(const Options& options);
int bench_command(const Options& options);
int ckpt_command(const Options& options);
int cache_command(const Options& options);
int send_command(const Options& options);
int receive_command(const Options& options);
int keys_command(const Options& options);
int quantize_command(const Options& options);
int importance_command(const Options& options);
int export_command(const Options& options);
int export_cpp(const Options& options);  // export --cpp
int list_command(const Options& options);
int list_models_command(const Options& options);
int inspect_command(const Options& options);
int plugin_command(const Options& options);
int version_command(const Options& options);
int config_command(const Options& options);
int completion_command(const Options& options);
int man_command(const Options& options);

// The table of verbs, built once from the rows in verbs.cpp.
const CommandTable& command_table();
std::vector<std::string> verb_names();
// Returns the row of a verb. Throws ErrorKind::Usage with the nearest name for an unknown one.
const VerbRow& verb_named(const std::string& name);

}  // namespace harmonics::engine::cli
