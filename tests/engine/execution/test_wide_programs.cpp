// Programs of all primitives on all plain element types, on the CPU.
#include "tests/engine/execution/wide_check.hpp"

using namespace harmonics::engine;
using namespace harmonics::engine::testing;

TEST_CASE("the CPU device gives the bits of the interpreter on exact programs") {
  const auto executor = make_team_executor(2);
  check_wide_programs({.seeds = 400, .size = 40}, *executor, on("cpu"));
  check_wide_programs({.seeds = 40, .size = 200}, *executor, on("cpu"));
}
