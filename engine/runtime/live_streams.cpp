#include "engine/runtime/live_streams.hpp"

#include <fmt/core.h>

namespace harmonics {

LiveStreams::LiveStreams(CyclePlan& plan) : plan_(plan) {
  for (size_t i = 0; i < plan_.producers.size(); ++i) {
    const int n = plan_.producers[i];
    Source& source = plan_.graph.streams().source(n);
    if (source.info().live) members_.push_back({i, plan_.name_of(n), &source});
  }
}

void LiveStreams::begin(const RunState* from) {
  for (Member& m : members_) {
    if (!from) {
      m.restored = m.source->restore(0, "");
      continue;
    }
    const auto at = from->live.find(m.name);
    if (at == from->live.end()) throw Error(ErrorKind::Weights, fmt::format("the checkpoint does not say where '{}' stood", m.name), {}, {"it was not live then: bind what it was bound to, or begin anew"});
    m.restored = m.source->restore(at->second.index, at->second.position);
  }
}

void LiveStreams::store(RunState& state) const {
  for (const Member& m : members_) {
    if (!m.restored) continue;
    const uint64_t index = plan_.reader->reads_from(m.number, state.index);
    state.live[m.name] = {index, m.source->position_before(index)};
  }
}

void LiveStreams::durable(const RunState& state) const {
  for (const Member& m : members_)
    if (const auto at = state.live.find(m.name); at != state.live.end()) m.source->durable(at->second.index);
}

bool LiveStreams::wants_durable() const {
  for (const Member& m : members_)
    if (const auto health = m.source->health(); m.restored && health && health->wants_durable) return true;
  return false;
}

void LiveStreams::cancel() const {
  for (const Member& m : members_) m.source->cancel();
}

}  // namespace harmonics
