#include "engine/passes/pass.hpp"

namespace harmonics::engine {

Program dce(const Program& program) {
  std::vector<bool> used(program.values.size(), false), keep(program.nodes.size(), false);
  for (const NamedValue& v : program.outputs) used[v.value] = true;
  for (const NamedValue& v : program.updates) used[v.value] = true;
  for (size_t i = program.nodes.size(); i-- > 0;) {
    const Node& node = program.nodes[i];
    for (ValueId v : node.outputs) keep[i] = keep[i] || used[v];
    if (keep[i])
      for (ValueId v : node.inputs) used[v] = true;
  }
  Rewriter rewriter(program);
  for (size_t i = 0; i < program.nodes.size(); ++i)
    if (keep[i]) rewriter.copy(program.nodes[i]);
  return rewriter.finish();
}

}  // namespace harmonics::engine
