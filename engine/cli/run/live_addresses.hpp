// Adds options from flags that apply to all live streams to the streams' addresses.
#pragma once

#include "engine/base/address.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine::cli {

// Returns whether streams of this scheme have an option of this name. `kind`: HX_PRODUCER or HX_CONSUMER.
bool takes_option(Registry& registry, uint32_t kind, const Address& address, std::string_view option);
// Adds an option to the address if its scheme has the option and the address does not set it.
void set_option(Registry& registry, uint32_t kind, Address& address, const std::string& option,
                const std::string& value);

}  // namespace harmonics::engine::cli
