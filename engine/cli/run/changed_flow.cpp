#include "engine/cli/run/changed_flow.hpp"

#include <utility>

#include <fmt/core.h>

#include "dsl/hmx/print.hpp"
#include "dsl/load.hpp"
#include "engine/checkpoint/live_types.hpp"
#include "engine/checkpoint/run_state.hpp"
#include "engine/cli/run/open_graph.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/flow/configure.hpp"

namespace harmonics::engine::cli {

namespace {

// Checkpoints store all changes, and their headers are limited.
constexpr size_t kMostChanges = 1000;

std::string written_text(const std::optional<ArgumentValue>& value) {
  if (!value) return "";
  if (const auto* text = std::get_if<std::string>(&value->value)) return *text;
  return to_text(*value);
}

LayerChange described_change(const std::string& layer, const ConfiguredFlow& changed) {
  LayerChange change{layer, {}};
  for (size_t i = 0; i < changed.before.size(); ++i)
    change.arguments.push_back({changed.before[i].argument, written_text(changed.before[i].value),
                                written_text(changed.after[i].value), changed.standards[i]});
  return change;
}

// Returns a single error without its place, because the text with the change is in no file.
Error unplaced(const SourceErrors& errors) {
  if (errors.errors().empty()) return errors;
  const Error& first = errors.errors().front();
  return Error(first.kind(), first.what(), {}, first.notes());
}

}  // namespace

ChangedFlow::ChangedFlow(const Flow& flow, const Options& options) : options_(options), flow_(flow) {
  if (!options.resume) return;
  const LayerChanges kept = changes_in(metadata_in(options.resume->empty() ? options.checkpoint : *options.resume));
  if (kept.all.empty()) return;
  std::string texts;
  try {
    if (kept.of != identity_of(flow.source->text())) throw Error(ErrorKind::Usage, "the flow's text has changed");
    for (const LayerChange& one : kept.all) {
      std::vector<ArgumentText> arguments;
      for (const LayerChange::Argument& a : one.arguments) arguments.push_back({a.name, a.after});
      Flow next;
      texts += (texts.empty() ? "" : "; ") + made(one.layer, arguments, Registry::global(), next).text();
      former_.push_back(std::exchange(flow_, std::move(next)));
    }
    print_note(fmt::format(
        "as requested before the checkpoint: {}; 'harmonics ctl PATH undo' takes back the last change", texts));
  } catch (const Error& e) {
    flow_ = flow;
    former_.clear();
    print_note(fmt::format("changes of layers that were requested before the checkpoint are dropped: {}", e.what()));
  }
}

void ChangedFlow::attach(CycleRuntime* runtime) {
  const std::lock_guard<std::mutex> lock(mutex_);
  runtime_ = runtime;
}

// Prints the flow with the change and parses it again, so that the usual checks apply and saved weights contain it.
LayerChange ChangedFlow::made(const std::string& layer, const std::vector<ArgumentText>& arguments, Registry& registry,
                              Flow& next) const {
  const ConfiguredFlow changed = configured(flow_, options_.graph, layer, arguments, registry);
  next = parse_flow(std::make_shared<SourceText>(flow_.source->name(), to_text(changed.flow)));
  next.changes = flow_.changes;
  if (next.changes.all.empty()) next.changes.of = identity_of(flow_.source->text());
  next.changes.all.push_back(described_change(layer, changed));
  return next.changes.all.back();
}

void ChangedFlow::switch_to(const Flow& next, const std::string& what) {
  if (runtime_ && graph_) {
    try {
      if (runtime_->configure(resolved(next, graph_->registry(), options_), what)) return;
    } catch (const SourceErrors& e) {
      throw unplaced(e);
    }
  }
  throw Error(ErrorKind::Usage, "no step follows", {}, {"layers are changed between two steps"});
}

LayerChange ChangedFlow::change_layer(const std::string& layer, const std::vector<ArgumentText>& arguments) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (former_.size() == kMostChanges)
    throw Error(ErrorKind::Usage, fmt::format("the run has {} changes already", kMostChanges), {},
                {"take changes back, or write them into the flow and resume the run"});
  Flow next;
  const LayerChange change = made(layer, arguments, graph_->registry(), next);
  switch_to(next, change.text());
  former_.push_back(std::exchange(flow_, std::move(next)));
  return change;
}

LayerChange ChangedFlow::undo_layer() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (former_.empty())
    throw Error(ErrorKind::Usage, "there is no change to take back", {},
                {"a change is made by: harmonics ctl PATH layer NAME ARGUMENT=VALUE"});
  LayerChange back = flow_.changes.all.back();
  for (LayerChange::Argument& a : back.arguments) std::swap(a.before, a.after);
  switch_to(former_.back(), back.text());
  flow_ = std::move(former_.back());
  former_.pop_back();
  return back;
}

}  // namespace harmonics::engine::cli
