#include "engine/cli/run/live_addresses.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/cli/terminal/terminal.hpp"

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

void expect_end(uint32_t kind, const Address& address) {
  struct Ends {
    const char *receives, *sends;
  };
  for (const Ends& ends :
       {Ends{"zmq+router", "zmq+dealer"}, Ends{"zmq+pull", "zmq+push"}, Ends{"zmq+sub", "zmq+pub"}}) {
    const bool sender = kind == HX_CONSUMER;
    if (address.scheme != (sender ? ends.receives : ends.sends)) continue;
    Address other = address;
    other.scheme = sender ? ends.sends : ends.receives;
    throw Error(ErrorKind::Usage, fmt::format("{}: {} samples", address.scheme, sender ? "receives" : "sends"), {},
                {fmt::format("{} {}", sender ? "send to" : "receive at", other.str())});
  }
}

void expect_door(const Address& address, const Options& options) {
  if (address.scheme != "http" || address.path.starts_with("//")) return;  // its producer names the remedy
  if (!options.serve.empty() || options.ui || !options.control.empty()) return;
  const bool runs = options.verb == "run";
  throw Error(ErrorKind::Usage,
              fmt::format("{}: its samples arrive at the address of {}, which is not given", address.str(),
                          runs ? "--serve" : "'harmonics run --serve'"),
              {},
              {runs ? "add --serve 127.0.0.1:8080"
                    : "receive at tcp:127.0.0.1:5555?format=jsonl, or another address that listens itself"});
}

void tell_waiting(Registry& registry, Address address, std::set<std::string>& told) {
  for (const char* other : {"file", "stdin", "http"})  // http: the run prints where it listens
    if (address.scheme == other) return;
  if (address.find("type")) return;  // does not wait
  if (!registry.find(HX_PRODUCER, address.scheme) || !takes_option(registry, HX_PRODUCER, address, "wait")) return;
  address.fragment.reset();
  address.options.clear();
  if (const std::string text = address.str(); told.insert(text).second) print_note("waiting for samples of " + text);
}

}  // namespace harmonics::engine::cli
