#include "engine/runtime/live_streams.hpp"

#include <fmt/core.h>

namespace harmonics {

namespace {

uint64_t lost_of(const Source& source) {
  const auto health = source.health();
  return health && !health->at_most_once ? health->lost : 0;
}

}  // namespace

LiveStreams::LiveStreams(CyclePlan& plan) : used_(plan.producers.size()) {
  for (size_t i = 0; i < plan.producers.size(); ++i) {
    const int n = plan.producers[i];
    Source& source = plan.graph.streams().source(n);
    if (source.info().live)
      members_.push_back({i, plan.name_of(n), &source, plan.graph.streams().announced(n), lost_of(source)});
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
    used_[m.number] = at->second.index;
  }
}

void LiveStreams::go_on(const std::vector<char>& restored) {
  for (size_t i = 0; i < members_.size() && i < restored.size(); ++i) members_[i].restored = restored[i];
}

std::vector<char> LiveStreams::restored() const {
  std::vector<char> all;
  for (const Member& m : members_) all.push_back(m.restored);
  return all;
}

void LiveStreams::store(RunState& state) const {
  for (const Member& m : members_) {
    if (!m.restored) continue;
    state.live[m.name] = {used_[m.number], m.source->position_before(used_[m.number]), m.type};
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

std::map<std::string, uint64_t> LiveStreams::lost() const {
  std::map<std::string, uint64_t> all;
  for (const Member& m : members_)
    if (const uint64_t lost = lost_of(*m.source); lost > m.lost_before) all[m.name] = lost - m.lost_before;
  return all;
}

void LiveStreams::cancel() const {
  for (const Member& m : members_) m.source->cancel();
}

}  // namespace harmonics
