#include "engine/cli/commands/dot.hpp"

#include <fmt/core.h>

#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

std::string dot_quoted(const std::string& text) {
  std::string s = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') s += '\\';
    s += c;
  }
  return s + "\"";
}

std::string label_of(const std::vector<BoundCall>& calls) {
  std::string s;
  for (const BoundCall& c : calls) s += (s.empty() ? "" : ", ") + c.item->name;
  return s;
}

}  // namespace

std::string dot_of(BoundGraph& graph) {
  const Graph& g = graph.graph();
  std::optional<Widths> widths;
  try {
    widths = graph.widths();
  } catch (const Error&) {
    // The graph is drawn without widths if they depend on unknown data.
  }
  std::string s = fmt::format(
      "digraph {} {{\n  rankdir=LR;\n  node [fontname=\"sans-serif\", fontsize=11];\n  edge [fontname=\"sans-serif\", "
      "fontsize=9];\n",
      dot_quoted(g.name));
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const GraphNode& n = g.nodes[i];
    const char* style = n.kind == DeclarationKind::Producer ? "shape=cds, style=filled, fillcolor=\"#d9ead3\""
                        : n.kind == DeclarationKind::Consumer
                            ? "shape=cds, style=filled, fillcolor=\"#fce5cd\""
                            : "shape=box, style=\"rounded,filled\", fillcolor=\"#e8eef7\"";
    std::string label = n.name;
    if (widths && widths->of.count(static_cast<int>(i)))
      label += "\\n" + widths->of.at(static_cast<int>(i)).shape.str();
    s += fmt::format("  n{} [label=\"{}\", {}];\n", i, label, style);
  }
  for (const GraphEdge& e : g.edges) {
    s += fmt::format("  n{} -> n{} [label={}];\n", e.source, e.target, dot_quoted(label_of(e.calls)));
    for (const BoundCall& c : e.calls)
      for (const auto& [argument, layer] : c.layers)
        s += fmt::format("  n{} -> n{} [label={}, style=dotted];\n", layer, e.target, dot_quoted(argument));
  }
  for (const GraphTap& t : g.taps) {
    s += fmt::format("  n{} -> n{} [label={}, style=dashed, color=\"#b45f06\", constraint=false];\n", t.target, t.layer,
                     dot_quoted(label_of(t.losses)));
    for (const BoundCall& c : t.losses)
      for (const auto& [argument, layer] : c.layers)
        s += fmt::format("  n{} -> n{} [label={}, style=dotted, color=\"#b45f06\", constraint=false];\n", layer,
                         t.layer, dot_quoted(argument));
  }
  return s + "}\n";
}

}  // namespace harmonics::engine::cli
