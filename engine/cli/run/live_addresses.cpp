#include "engine/cli/run/live_addresses.hpp"

#include <algorithm>

namespace harmonics::engine::cli {

bool takes_option(Registry& registry, uint32_t kind, const Address& address, std::string_view option) {
  const ItemPtr item = registry.need(kind, address.scheme);
  return std::any_of(item->arguments.begin(), item->arguments.end(),
                     [&](const ArgumentSpec& a) { return a.name == option; });
}

void set_option(Registry& registry, uint32_t kind, Address& address, const std::string& option,
                const std::string& value) {
  if (!address.find(option) && takes_option(registry, kind, address, option))
    address.options.push_back({option, value});
}

}  // namespace harmonics::engine::cli
