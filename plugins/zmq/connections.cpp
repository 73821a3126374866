#include "connections.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

namespace harmonics::zmq {

namespace {
constexpr size_t kMostUnspoken = 64;
}

size_t most_connections() {
  constexpr size_t kMost = 512, kLeast = 4;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMost;
  std::error_code error;
  size_t used = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end; at.increment(error))
    ++used;
  const auto most = static_cast<size_t>(limit.rlim_cur);
  return std::clamp(most > used ? (most - used) / 2 : 0, kLeast, kMost);
}

std::optional<int> Connections::accepted(int descriptor, wire::Time now) {
  all_[descriptor] = {now};
  const auto unspoken = std::count_if(all_.begin(), all_.end(),
                                      [](const auto& entry) { return !entry.second.spoke && !entry.second.ended; });
  if (all_.size() <= most_ && static_cast<size_t>(unspoken) <= kMostUnspoken) return std::nullopt;
  auto victim = all_.find(descriptor);
  for (auto at = all_.begin(); at != all_.end(); ++at)
    if (!at->second.spoke && !at->second.ended && at->second.heard < victim->second.heard) victim = at;
  victim->second.ended = true;
  return victim->first;
}

void Connections::heard(int descriptor, wire::Time now) {
  const auto at = all_.find(descriptor);
  if (at == all_.end()) return;
  at->second.heard = now;
  at->second.spoke = true;
}

std::vector<int> Connections::silent(wire::Time now, wire::Time first, wire::Time silence) {
  std::vector<int> found;
  for (auto& [descriptor, c] : all_) {
    if (c.ended || now - c.heard <= (c.spoke ? silence : first)) continue;
    c.ended = true;
    found.push_back(descriptor);
  }
  return found;
}

}  // namespace harmonics::zmq
