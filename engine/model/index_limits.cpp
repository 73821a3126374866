#include "engine/model/index_limits.hpp"

#include <algorithm>
#include <map>

#include "engine/program/functional.hpp"

namespace harmonics::engine {

std::vector<int64_t> index_limits(const Program& p, size_t inputs) {
  std::vector<int64_t> limits(inputs, 0);
  std::map<ValueId, size_t> from;
  size_t seen = 0;
  const auto limit = [&](ValueId index, int64_t n) {
    const auto it = from.find(index);
    if (it == from.end()) return;
    int64_t& known = limits[it->second];
    known = known == 0 ? n : std::min(known, n);
  };
  for (const Node& n : p.nodes) {
    if (n.op == Op::input && seen < inputs) from[n.outputs.at(0)] = seen++;
    if (n.inputs.empty() || n.outputs.empty()) continue;
    if (const FunctionalPtr f = called_by(n)) {
      const std::vector<TensorType> types = input_types(p, n);
      for (size_t i = 0; i < n.inputs.size(); ++i)
        if (const auto most = index_limit(f->signature, i, n.attributes, types)) limit(n.inputs[i], *most);
    } else if (n.op != Op::call && n.inputs.size() == 1 && is_integer(p.type(n.outputs[0]).dtype)) {
      if (const auto it = from.find(n.inputs[0]); it != from.end()) from[n.outputs[0]] = it->second;
    }
  }
  return limits;
}

}  // namespace harmonics::engine
