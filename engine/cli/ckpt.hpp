// A checkpoint for people, for every verb that shows one.
#pragma once

#include <string>

#include "engine/cli/options.hpp"

namespace harmonics::cli {

// `path`: a file, or a folder whose newest is meant.
int show_checkpoint(const std::string& path, const Options& options);

}  // namespace harmonics::cli
