#include "engine/passes/observe.hpp"

#include <vector>

namespace harmonics::engine {

Program observe(Program program, const std::function<bool(const std::string& output)>& wanted) {
  std::erase_if(program.outputs, [&](const NamedValue& output) { return !wanted(output.name); });
  return program;
}

}  // namespace harmonics::engine
