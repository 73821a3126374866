// Prints a checkpoint in readable form, for every verb that shows one.
#pragma once

#include <string>

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

// `path`: a file, or a folder, of which the newest checkpoint is shown.
int show_checkpoint(const std::string& path, const Options& options);

}  // namespace harmonics::engine::cli
