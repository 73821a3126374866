// Steps that an address adds to a stream: cache=, augment= and async= affect one stream, where= all joined streams.
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

// Returns the options that the address of every producer accepts, in the order in which they are applied.
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
  std::vector<std::function<void(uint64_t seed)>> reseed;  // set the seed of the augmentations
  bool passes_differ = false;
  std::optional<Condition> condition;
};
SteppedSource with_steps(const std::string& name, Source source, const StreamSteps& steps, Registry& registry);

// Returns the source with a known number of classes, which are counted if necessary, and repeatable: a finite source
// that cannot be read twice is cached in memory as it is read. Must be called before the first sample is read.
Source known_source(Source source);

// Routes a live stream through the spool. `from`: the address it comes from; streams of one address stay aligned.
Source with_spool(const std::string& name, Source source, const std::string& from, Spool& spool);

struct ConditionedMember {
  JointMember member;
  const Condition& condition;
};
// Returns the numbers of the joint samples, among the first `groups`, for which every condition holds. Reads the
// members from beginning to end. Throws for unbounded members and for conditions that never hold.
std::vector<uint64_t> numbers_that_hold(const std::vector<ConditionedMember>& members, uint64_t groups);
// Returns a stream of only these joint samples, `per_group` samples each.
std::shared_ptr<Source> pick(const std::shared_ptr<Source>& source,
                             std::shared_ptr<const std::vector<uint64_t>> numbers, uint64_t per_group);

}  // namespace harmonics::engine
