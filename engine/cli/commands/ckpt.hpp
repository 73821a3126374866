// Prints a checkpoint in readable form, for all verbs that show one.
#pragma once

#include <string>

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

// Shows a checkpoint file, or the newest checkpoint of a folder.
int show_checkpoint(const std::string& path, const Options& options);

}  // namespace harmonics::engine::cli
