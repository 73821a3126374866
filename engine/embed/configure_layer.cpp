// Implements hx_graph::configure_layer: prints the flow with the new arguments and parses it again, so that the usual
// checks apply and save() writes the new arguments.
#include <fmt/core.h>

#include "dsl/hmx/print.hpp"
#include "dsl/load.hpp"
#include "engine/embed/embedded_graph.hpp"

using namespace harmonics::engine;

namespace {

// Returns the text for notes: "'hidden': rate = 0.3, dim = 2".
std::string spoken_changes(const std::string& layer, const std::vector<ArgumentText>& changes) {
  std::string text;
  for (const ArgumentText& change : changes)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", change.argument,
                        change.value.empty() ? "the default" : change.value);
  return fmt::format("'{}' has {}", layer, text);
}

std::string undoing_text(const std::optional<ArgumentValue>& value) {
  if (!value) return "";
  if (const auto* text = std::get_if<std::string>(&value->value)) return *text;
  return to_text(*value);
}

}  // namespace

const std::vector<const char*>& hx_graph::configure_layer(const std::string& layer,
                                                          const std::vector<ArgumentText>& changes) {
  const std::lock_guard<std::recursive_mutex> lock(owner_);
  const std::shared_ptr<Running> beside = running();
  Registry& names = (beside ? *graph_ : graph()).registry();
  const ConfiguredFlow changed = configured(flow_, name_, layer, changes, names);
  Flow next = parse_flow(std::make_shared<SourceText>(flow_.source->name(), to_text(changed.flow)));
  std::swap(flow_, next);
  try {
    Graph graph = resolved(chain_.innermost());
    if (!beside || !beside->runtime.configure(graph, spoken_changes(layer, changes))) take_graph(std::move(graph));
    if (beside) beside->inference.forget();
  } catch (...) {
    std::swap(flow_, next);
    throw;
  }
  undo_.clear();
  undo_pointers_.clear();
  for (const ArgumentChange& change : changed.before) undo_.push_back(undoing_text(change.value));
  for (const std::string& text : undo_) undo_pointers_.push_back(text.c_str());
  return undo_pointers_;
}

// Exchanges the graph. If weights exist, checks that its programs fit them, and restores the former graph if not.
void hx_graph::take_graph(Graph graph) {
  inference_.step.reset();
  Graph former = graph_->exchange(std::move(graph));
  if (graph_->store().all().empty()) return;
  try {
    graph_->assume_declared_streams();
    graph_->lower(inference_options(*graph_, 1));
  } catch (...) {
    graph_->exchange(std::move(former));
    throw;
  }
}
