// What flags say of all live streams, written into their addresses.
#pragma once

#include "engine/base/address.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::cli {

// Whether streams of this scheme have an option of this name. `kind`: HX_PRODUCER or HX_CONSUMER.
bool takes_option(Registry& registry, uint32_t kind, const Address& address, std::string_view option);
// Gives the address an option, if its scheme has it and it was not given.
void set_option(Registry& registry, uint32_t kind, Address& address, const std::string& option,
                const std::string& value);

}  // namespace harmonics::cli
