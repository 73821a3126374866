#include "engine/execution/recompute_budget.hpp"

#include <algorithm>

#include <unistd.h>

#include <fmt/core.h>

#include "engine/execution/compiled_plan.hpp"
#include "engine/passes/pass.hpp"
#include "engine/passes/recomputation.hpp"

namespace harmonics::engine {

namespace {

uint64_t half_of_memory() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) / 2;
}

constexpr uint32_t kAll = 16;  // sixteenths

}  // namespace

bool keeps_budget(const Program& program, const CompileOptions& options) {
  if (!parse_recomputation(options.recomputation).automatic) return false;
  return std::any_of(program.nodes.begin(), program.nodes.end(),
                     [&](const Node& node) { return is_in(Phase::gradient, program, node); });
}

CompileOptions within_budget(const Program& program, TensorBinding* binding, Executor& executor,
                             const CompileOptions& options) {
  const uint64_t given = parse_recomputation(options.recomputation).budget, budget = given ? given : half_of_memory();
  CompileOptions chosen = options;
  chosen.recomputation.clear();
  const auto arena = [&](uint32_t sixteenths) {
    CompileOptions probe = chosen;
    probe.observe = {};
    probe.plan_only = true;
    probe.recompute_cheapest = sixteenths;
    return compile(program, binding, executor, probe)->memory().arena_bytes;
  };
  if (arena(0) <= budget) return chosen;
  if (const uint64_t least = arena(kAll); least > budget)
    throw Error(ErrorKind::Usage,
                fmt::format("a step needs {} bytes of results even if all of each block is computed again, and "
                            "recompute auto allows {}",
                            least, budget),
                {}, {"use a smaller batch, or allow more: auto=SIZE"});
  uint32_t low = 0, high = kAll;  // too little, enough
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (arena(middle) <= budget ? high : low) = middle;
  }
  chosen.recompute_cheapest = high;
  return chosen;
}

}  // namespace harmonics::engine
