// Gathers the importance of columns: what texts bring to the inputs of a model's linear maps.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/execution/executable.hpp"
#include "engine/model/importance.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

struct GatherOptions {
  int64_t chunk = 512;  // tokens of one run, at least 1; each begins a sequence
  int64_t chunks = 0;   // most chunks; 0: all whole ones
  CompileOptions compile;
};

// Runs the entry "forward" on chunks of the tokens and sums the squares of the inputs of every linear map whose weight
// is a parameter. Tokens behind the last whole chunk are left out; fewer than one chunk are one. "NAME[i]" is matrix i
// of NAME. Throws ErrorKind::Usage if there are no tokens, ErrorKind::Name if the model has no entry "forward".
ImportanceMatrix gather_importance(const Model& model, std::span<const int32_t> tokens, const GatherOptions& options,
                                   Executor& executor, const std::function<void(double)>& progress = {});

}  // namespace harmonics::engine
