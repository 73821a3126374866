// ChangedFlow: the flow of a run, whose layers get other arguments by request: harmonics ctl PATH layer NAME rate=0.3.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/bound/bound_graph.hpp"
#include "engine/cli/options/options.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

class ChangedFlow final : public LayerChanger {
 public:
  // If the run resumes from a checkpoint with changes to this text, makes them again and notes them.
  ChangedFlow(const Flow& flow, const Options& options);

  const Flow& flow() const { return flow_; }
  // Returns the text to which places in the graph refer. The reference stays valid, and follows later changes.
  const std::shared_ptr<const SourceText>& source() const { return flow_.source; }
  // Sets the graph of the run, which must outlive later changes.
  void bind(BoundGraph& graph) { graph_ = &graph; }
  // Sets the cycle that runs; null for none. Waits for a change in progress.
  void attach(CycleRuntime* runtime);

  LayerChange change_layer(const std::string& layer, const std::vector<ArgumentText>& arguments) override;
  LayerChange undo_layer() override;

 private:
  LayerChange made(const std::string& layer, const std::vector<ArgumentText>& arguments, Registry& registry,
                   Flow& next) const;
  void switch_to(const Flow& next, const std::string& what);

  const Options& options_;
  std::mutex mutex_;
  Flow flow_;
  std::vector<Flow> former_;  // before each change
  BoundGraph* graph_ = nullptr;
  CycleRuntime* runtime_ = nullptr;
};

}  // namespace harmonics::engine::cli
