#include "engine/bound/torch_names.hpp"

#include <string>
#include <utility>

#include "engine/flow/run_edge.hpp"

namespace harmonics::engine {

namespace {

void rename(TensorFile& file, const std::string& from, const std::string& to) {
  const auto found = file.tensors.find(from);
  if (found == file.tensors.end() || file.tensors.count(to)) return;
  HTensor tensor = std::move(found->second);
  file.tensors.erase(found);
  file.tensors.emplace(to, std::move(tensor));
}

}  // namespace

void rename_torch_norms(const Graph& graph, TensorFile& file) {
  for (const GraphEdge& edge : graph.edges)
    for (size_t i = 0; i < edge.calls.size(); ++i) {
      if (edge.calls[i].item->name != "norm") continue;
      const std::string prefix = parameter_prefix(edge, i);
      rename(file, prefix + ".weight", prefix + ".gain");
      rename(file, prefix + ".running_var", prefix + ".running_variance");
      file.tensors.erase(prefix + ".num_batches_tracked");
    }
}

}  // namespace harmonics::engine
