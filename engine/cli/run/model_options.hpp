// How the options say to read a language model.
#pragma once

#include "engine/cli/options/options.hpp"
#include "engine/transformer/architectures.hpp"

namespace harmonics::engine::cli {

// Reads the file of --spec. Throws ErrorKind::Usage for a --set that is not NAME=VALUE.
ModelOptions model_options(const Options& options);

}  // namespace harmonics::engine::cli
