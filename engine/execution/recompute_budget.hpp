// Resolves "recompute auto": how much of a training step is recomputed to keep its memory within a budget.
#pragma once

#include "engine/execution/executable.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

// Returns whether the options request this and the program has a backward pass.
bool keeps_budget(const Program& program, const CompileOptions& options);
// Returns the options with the least recomputation whose arena fits the budget. Throws ErrorKind::Usage if none does.
CompileOptions within_budget(const Program& program, TensorBinding* binding, Executor& executor,
                             const CompileOptions& options);

}  // namespace harmonics::engine
