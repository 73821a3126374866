#include "engine/bound/other_functions.hpp"

#include <map>
#include <utility>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

// Returns the functions of all arrows between two nodes, by name and arguments.
std::map<std::pair<std::string, std::string>, std::string> functions_of(const Graph& graph) {
  std::map<std::pair<std::string, std::string>, std::string> all;
  for (const GraphEdge& e : graph.edges) {
    const auto name = [&](int n) { return graph.nodes[static_cast<size_t>(n)].name; };
    std::string& text = all[{name(e.source), name(e.target)}];
    for (size_t i = e.implied_affine ? 1 : 0; i < e.calls.size(); ++i)
      if (const BoundCall& call = e.calls[i]; !(call.item->flags & HX_MODE_ONLY))
        text += (text.empty() ? "" : ", ") + call.item->name + call.arguments.str();
  }
  return all;
}

std::string spoken(const std::string& functions) { return functions.empty() ? "nothing" : functions; }

}  // namespace

std::vector<std::string> other_functions(const Graph& learned, const Graph& now) {
  std::vector<std::string> differ;
  const auto is = functions_of(now);
  for (const auto& [arrow, functions] : functions_of(learned))
    if (const auto at = is.find(arrow); at != is.end() && at->second != functions)
      differ.push_back(fmt::format("from '{}' to '{}' by {}, which is {} now", arrow.first, arrow.second,
                                   spoken(functions), spoken(at->second)));
  return differ;
}

}  // namespace harmonics::engine
