// "recompute auto": how much of a training step is computed again so that its memory keeps a budget.
#pragma once

#include "engine/execution/executable.hpp"
#include "engine/program/program.hpp"

namespace harmonics::engine {

// Whether the options ask for it and the program has a backward pass.
bool keeps_budget(const Program& program, const CompileOptions& options);
// The options with the least recomputation whose plan's arena keeps the budget. Throws ErrorKind::Usage if none does.
CompileOptions within_budget(const Program& program, TensorBinding* binding, Executor& executor,
                             const CompileOptions& options);

}  // namespace harmonics::engine
