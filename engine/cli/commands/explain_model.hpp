// Shows language models and their specs for `explain`.
#pragma once

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

// Shows the spec of a model that an importer reads, or a spec (JSON) with --weights, resolved for the file of weights.
// Returns false for other files.
bool explain_model(const Options& options);
// Shows the blocks, tensors and sizes of a .ndsl file or of a built-in .ndsl model. Returns false for other files.
bool explain_ndsl(const Options& options);

}  // namespace harmonics::engine::cli
