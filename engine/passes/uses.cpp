#include "engine/passes/uses.hpp"

#include <numeric>

#include "engine/passes/pass.hpp"

namespace harmonics::engine {

Uses::Uses(const Program& program, Of of)
    : begins_(program.values.size() + 2), results_(program.values.size()), outputs_(program.values.size()) {
  const auto read = [&](ValueId v) { return of == Of::roots ? behind_views(program, v) : v; };
  // Counting sort: begins_[v + 2] counts the readers of v; after the prefix sum, begins_[v + 1] is the next free slot.
  for (const Node& node : program.nodes)
    for (ValueId v : node.inputs) ++begins_[read(v) + 2];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  readers_.resize(begins_.back());
  for (uint32_t i = 0; i < program.nodes.size(); ++i)
    for (ValueId v : program.nodes[i].inputs) readers_[begins_[read(v) + 1]++] = i;
  for (const NamedValue& v : program.outputs) ++results_[read(v.value)], outputs_[read(v.value)] = true;
  for (const NamedValue& v : program.updates) ++results_[read(v.value)];
}

}  // namespace harmonics::engine
