// What an address has done to one stream on its way: cache=, augment=, async=, and where= for all it is read with.
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

namespace harmonics {

class Spool;

// What every producer's address understands beside its own options, in the order it acts.
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
  std::vector<std::function<void(uint64_t seed)>> reseed;  // of what augments it with the run's seed
  bool passes_differ = false;
  std::optional<Condition> condition;
};
SteppedSource with_steps(const std::string& name, Source source, const StreamSteps& steps, Registry& registry);

// The same source, whose labels are counted where nobody says how many classes there are, and which can be read again:
// a finite one that cannot is kept as it is read. To be asked before the first sample.
Source known_source(Source source);

// A live stream by way of the disk. `source`: where it comes from; streams of one source stay level there.
Source with_spool(const std::string& name, Source source, const std::string& from, Spool& spool);

struct ConditionedMember {
  JointMember member;
  const Condition& condition;
};
// The joint samples, of the first `groups`, for which every condition holds. Reads the members from beginning to end;
// refuses those without one, and conditions that never hold.
std::vector<uint64_t> numbers_that_hold(const std::vector<ConditionedMember>& members, uint64_t groups);
// Those joint samples of a stream, `per_group` samples each.
std::shared_ptr<Source> pick(const std::shared_ptr<Source>& source,
                             std::shared_ptr<const std::vector<uint64_t>> numbers, uint64_t per_group);

}  // namespace harmonics
