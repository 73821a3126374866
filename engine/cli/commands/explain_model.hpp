// Language models and their specs, as `explain` shows them.
#pragma once

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

// Shows what a spec becomes for a file of weights, if the file is a model that an importer reads, or a spec
// (JSON) with --weights. Returns false for other files.
bool explain_model(const Options& options);
// Shows the blocks, tensors and sizes of a .ndsl file or a built-in model of that kind. Returns false for other files.
bool explain_ndsl(const Options& options);

}  // namespace harmonics::engine::cli
