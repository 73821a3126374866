// The functions of the verbs, one each. Their rows are in verbs.cpp.
#pragma once

#include "engine/cli/options.hpp"

namespace harmonics::cli {

int run_command(const Options& options);
int infer_command(const Options& options);
int serve_command(const Options& options);
int ctl_command(const Options& options);
int top_command(const Options& options);
int tap_command(const Options& options);
int validate_command(const Options& options);
int explain_command(const Options& options);
int profile_command(const Options& options);
int bench_command(const Options& options);
int ckpt_command(const Options& options);
int send_command(const Options& options);
int receive_command(const Options& options);
int keys_command(const Options& options);
int list_command(const Options& options);
int inspect_command(const Options& options);
int plugin_command(const Options& options);
int version_command(const Options& options);
int config_command(const Options& options);
int completion_command(const Options& options);
int man_command(const Options& options);

// Exit codes (from sysexits where one fits): docs/cli.md.
enum Exit {
  kDone = 0,
  kFailed = 1,
  kWrongUse = 2,
  kBadData = 65,
  kNoInput = 66,
  kUnavailable = 69,
  kInternal = 70,
  kCannotWrite = 73,
  kInputOutput = 74,
  kResumable = 75,
  kNotAllowed = 77,
  kInvalidGraph = 78,
  kInterrupted = 130
};
int exit_code(ErrorKind kind);

}  // namespace harmonics::cli
