// Steps an address adds to a stream: cache=, augment= and async= for one stream, where= for all joined streams.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <harmonics/select.hpp>

#include "engine/base/address.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/streams/joint_reader.hpp"
#include "engine/streams/stream_source.hpp"

namespace harmonics::engine {

class Spool;

// Options that every producer's address takes besides its own, in the order they are applied.
struct StreamOption {
  const char* name;
  const char* description;
};
const std::vector<StreamOption>& stream_options();

struct StreamSteps {
  std::optional<std::string> cache, augment, augment_seed, async, where;
};
StreamSteps take_stream_steps(Address& address);

struct SteppedSource {
  Source source;
  std::vector<std::function<void(uint64_t seed)>> reseed;  // sets the run's seed in the augmentations
  bool passes_differ = false;
  std::optional<Condition> condition;
};
SteppedSource with_steps(const std::string& name, Source source, const StreamSteps& steps, Registry& registry);

// Returns the same source, with its labels counted if the number of classes is unknown, and made repeatable: a finite
// source that cannot be read twice is kept in memory as it is read. Call before the first sample.
Source known_source(Source source);

// Routes a live stream through the spool on disk. `source`: its origin; streams of one origin stay level there.
Source with_spool(const std::string& name, Source source, const std::string& from, Spool& spool);

struct ConditionedMember {
  JointMember member;
  const Condition& condition;
};
// Returns the joint samples, of the first `groups`, for which every condition holds. Reads the members from beginning
// to end. Refuses members without an end, and conditions that never hold.
std::vector<uint64_t> numbers_that_hold(const std::vector<ConditionedMember>& members, uint64_t groups);
// Returns a stream of only these joint samples, `per_group` samples each.
std::shared_ptr<Source> pick(const std::shared_ptr<Source>& source,
                             std::shared_ptr<const std::vector<uint64_t>> numbers, uint64_t per_group);

}  // namespace harmonics::engine
