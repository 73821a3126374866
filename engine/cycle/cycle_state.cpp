#include "engine/cycle/cycle_state.hpp"

#include <cstring>

#include <fmt/core.h>

#include "engine/execution/kernel_source.hpp"

namespace harmonics::engine {

namespace {

std::string reading(const JointOptions& o) {
  return fmt::format("shuffle={} skip={} take={} shard={}/{} repeat={} seed={}", o.shuffle, o.skip, o.take, o.shard,
                     o.shards, o.repeat, o.seed);
}

std::string device_text(const RunSettings& run) {
  std::string text = run.device;
  if (run.precision != Precision::fp32) text += std::string(", ") + precision_name(run.precision);
  return run.policy.empty() ? text : text + ", policy " + run.policy;
}

}  // namespace

void CycleState::note_if_not_resumable() {
  const CyclePlan& plan = cycle_.plan;
  for (int n : plan.producers) {
    Source& source = plan.graph.streams().source(n);
    if (plan.from && !source.info().live) continue;  // already open; an earlier cycle noted the reason
    const bool by_number = plan.reader->joins_by_number() && !source.info().live;
    const std::string why = by_number ? fmt::format("'{}' is not a live stream, but is joined by number", source.name())
                                      : source.cannot_seek();
    if (why.empty() || !not_resumable_.empty()) continue;
    not_resumable_ = why;
    cycle_.note(fmt::format("checkpoints of this run keep its weights, but it cannot be resumed from them: {}", why));
  }
}

RunState CycleState::of_last_step() {
  const CyclePlan& plan = cycle_.plan;
  RunState s;
  cycle_.record.store(s);
  cycle_.watch.store(s);
  s.cycle = plan.cycle;
  s.epoch = cycle_.at.epoch;
  s.index = cycle_.at.index;
  s.not_resumable = not_resumable_;
  for (int n : plan.producers) s.streams[plan.name_of(n)] = plan.graph.streams().source(n).info().size;
  streams_.store(s, cycle_.at.reads);
  s.learning_rate_set = rate_.set();
  s.reading = reading(plan.reader->options());
  const Graph& g = plan.graph.graph();
  s.graph = g.name;
  s.identity = identity_of(g.source ? g.source->text() : "");
  s.changes = g.changes;
  s.seed = plan.settings.seed;
  s.training = plan.settings.training();
  s.device = device_text(plan.run);
  s.batch = plan.settings.batch;
  s.accumulate = plan.settings.accumulate;
  s.implementations = cycle_.programs.implementations();
  s.routes = {{"precision", precision_name(plan.run.precision)},
              {"device", KernelSource(plan.run.device, plan.graph.registry()).description()}};
  if (!plan.run.precision_reason.empty()) s.routes["precision chosen"] = "auto";
  if (plan.run.least_side > 0) s.routes["precision from side"] = std::to_string(plan.run.least_side);
  for (auto& [operation, kernels] : cycle_.programs.kernels()) s.routes["kernels of " + operation] = kernels;
  return s;
}

RunState CycleState::fill(TensorFile& file) {
  cycle_.plan.graph.snapshot(file);
  if (cycle_.record.gathered() > 0)
    for (const auto& [name, bytes] : statistics_)
      std::memcpy(file.tensors.at(name).raw()->storage->data(), bytes.data(), bytes.size());
  return of_last_step();
}

void CycleState::step_began() {
  const ParameterStore& store = cycle_.plan.graph.store();
  for (const auto& [name, t] : store.all()) {
    if (t.role != Role::state) continue;
    std::vector<std::byte>& bytes = statistics_[name];
    bytes.resize(t.type.bytes());
    store.copy(name, bytes.data());
  }
}

void CycleState::step_dropped() {
  if (cycle_.record.gathered() == 0) return;
  ParameterStore& store = cycle_.plan.graph.store();
  for (auto& [name, bytes] : statistics_) store.assign(name, view_of(store.find(name)->type, bytes.data()));
}

}  // namespace harmonics::engine
