// A sender and its receiver with a faulty network between them.
#pragma once

#include "tests/transports/chaos_proxy.hpp"
#include "wire/inbox.hpp"

namespace transports {

struct ChaosWorld {
  std::string kind = "tcp";  // or "zmq+router"
  uint64_t seed = 0;
  std::vector<Storm> storms;
  double resumes_within = 60;  // seconds after a storm; tests run in parallel
};

struct ChaosVerdict {
  std::string
      error;  // "": every sample arrived once, in order and undamaged, in bounded memory, and soon after each storm
  int64_t samples = 0;
  double worst_seconds = 0;  // longest time until samples sent after a storm arrived
  std::string worst_storm;
  uint64_t most_queued = 0;  // bytes
  ChaosCounts counts;
  harmonics::wire::InboxHealth health;

  std::string str() const;
};

// For an otherwise idle machine: senders reconnect after five seconds of silence, which takes less than another
// second.
constexpr double kResumesWithin = 7;

ChaosVerdict live_through(const ChaosWorld& world);

// Scenario `number` of a campaign: even numbers have one storm of each fault, odd ones mixtures.
ChaosWorld world_of(const std::string& kind, uint64_t seed, int number);

}  // namespace transports
