// Adds options of flags for all live streams to the addresses of these streams.
#pragma once

#include <set>
#include <string>

#include "engine/base/address.hpp"
#include "engine/cli/options/options.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/streams/stream_source.hpp"

namespace harmonics::engine::cli {

// Returns whether streams of this scheme have the option. `kind` is HX_PRODUCER or HX_CONSUMER.
bool takes_option(Registry& registry, uint32_t kind, const Address& address, std::string_view option);
// Adds an option to the address unless its scheme lacks the option or the address sets it.
void set_option(Registry& registry, uint32_t kind, Address& address, const std::string& option,
                const std::string& value);
// Throws if the address has the scheme of the other end of a stream: zmq+router to send, zmq+dealer to receive.
void expect_end(uint32_t kind, const Address& address);
// Throws for http: addresses if the verb serves nothing, so that no sample could arrive.
void expect_door(const Address& address, const Options& options);

// Tells about streams that are open and wait for a first sample: one note for each address, then the samples refused
// meanwhile.
class FirstSamples {
 public:
  explicit FirstSamples(const Options& options) : quiet_(options.quiet) {}
  // For StreamSet::set_awaited() and open_source().
  AwaitedSource of(Registry& registry, Address address);

 private:
  const bool quiet_;
  std::set<std::string> told_;  // addresses
};

}  // namespace harmonics::engine::cli
