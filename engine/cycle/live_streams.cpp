#include "engine/cycle/live_streams.hpp"

#include <algorithm>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

LiveStreams::LossCounts gone_of(const Source& source) {
  const auto health = source.health();
  if (!health) return {};
  return {health->lost, health->refused, health->at_most_once, health->last_error};
}

}  // namespace

LiveStreams::LiveStreams(CyclePlan& plan) {
  for (size_t i = 0; i < plan.producers.size(); ++i) {
    const int n = plan.producers[i];
    Source& source = plan.graph.streams().source(n);
    if (source.info().live)
      members_.push_back({i, plan.name_of(n), &source, plan.graph.streams().announced(n), gone_of(source).lost});
  }
}

void LiveStreams::begin(const RunState* from, std::vector<uint64_t>& reads) {
  for (Member& m : members_) {
    if (!from) {
      m.restored = m.source->restore(0, "");
      continue;
    }
    const auto at = from->live.find(m.name);
    if (at == from->live.end())
      throw Error(ErrorKind::Weights, fmt::format("the checkpoint has no position for live stream '{}'", m.name), {},
                  {"it was not live then: bind the original source, or start a new run"});
    m.restored = m.source->restore(at->second.index, at->second.position);
    reads[m.number] = at->second.index;
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

void LiveStreams::store(RunState& state, const std::vector<uint64_t>& reads) const {
  for (const Member& m : members_) {
    if (!m.restored) continue;
    state.live[m.name] = {reads[m.number], m.source->position_before(reads[m.number]), m.type};
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

std::map<std::string, LiveStreams::LossCounts> LiveStreams::gone() const {
  std::map<std::string, LossCounts> all;
  for (const Member& m : members_) {
    LossCounts gone = gone_of(*m.source);
    gone.lost -= std::min(gone.lost, m.lost_before);
    if (gone.lost > 0 || gone.refused > 0 || !gone.last_error.empty()) all[m.name] = std::move(gone);
  }
  return all;
}

void LiveStreams::cancel() const {
  for (const Member& m : members_) m.source->cancel();
}

}  // namespace harmonics::engine
