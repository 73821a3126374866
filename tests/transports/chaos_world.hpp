// A sender, its receiver, and a network of bad weather between them.
#pragma once

#include "tests/transports/chaos_proxy.hpp"
#include "wire/inbox.hpp"

namespace transports {

struct ChaosWorld {
  std::string kind = "tcp";  // or "zmq+router"
  uint64_t seed = 0;
  std::vector<Storm> storms;
  double resumes_within = 60;  // seconds after a storm; tests share their machine
};

struct ChaosVerdict {
  std::string
      error;  // "": every sample arrived once, in order and undamaged, within bounded memory, and soon after each storm
  int64_t samples = 0;
  double worst_seconds = 0;  // until samples that were sent after a storm arrived
  std::string worst_storm;
  uint64_t most_queued = 0;  // bytes
  ChaosCounts counts;
  harmonics::wire::InboxHealth health;

  std::string str() const;
};

// Of a machine of its own: senders look for another connection after five seconds of silence, and find one in less than
// another.
constexpr double kResumesWithin = 7;

ChaosVerdict live_through(const ChaosWorld& world);

// World `number` of a campaign: those with even numbers have one storm of each kind, the others mixtures.
ChaosWorld world_of(const std::string& kind, uint64_t seed, int number);

}  // namespace transports
