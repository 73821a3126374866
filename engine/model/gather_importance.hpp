// Gathers the importance of matrix columns from the inputs of a model's linear maps on a text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/execution/executable.hpp"
#include "engine/model/importance.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

struct GatherOptions {
  int64_t chunk = 512;  // tokens per run, at least 1; each run is a new sequence
  int64_t chunks = 0;   // maximum number of chunks; 0: all complete ones
  CompileOptions compile;
};

// Runs the entry "forward" on chunks of the tokens and sums the squared inputs of every linear map whose weight is a
// parameter. Ignores tokens after the last complete chunk; if there are fewer tokens than one chunk, they are one
// chunk. A parameter "NAME[i]" is matrix i of NAME. Throws ErrorKind::Usage if there are no tokens, and ErrorKind::Name
// if the model has no entry "forward".
ImportanceMatrix gather_importance(const Model& model, std::span<const int32_t> tokens, const GatherOptions& options,
                                   Executor& executor, const std::function<void(double)>& progress = {});

}  // namespace harmonics::engine
