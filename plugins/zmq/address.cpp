#include "address.hpp"

#include <fmt/format.h>

#include <harmonics/error.hpp>

namespace harmonics::zmq {

const char* scheme_of(Pattern pattern) {
  static constexpr const char* kNames[] = {"zmq+router", "zmq+dealer", "zmq+pull", "zmq+push", "zmq+sub", "zmq+pub"};
  return kNames[static_cast<size_t>(pattern)];
}

std::string Address::str() const { return fmt::format("{}://{}:{}", scheme_of(pattern), host, port); }
std::string Address::endpoint() const {
  return fmt::format("tcp://{}:{}", host, port == 0 ? "*" : std::to_string(port));
}

Address parse_address(Pattern pattern, const std::string& text) {
  const std::string scheme = scheme_of(pattern);
  const auto refuse = [&](const std::string& what) -> Error {
    return Error(ErrorKind::Usage, scheme + ":" + text + ": " + what)
        .note("write " + scheme + "://127.0.0.1:5555, or " + scheme + "://[::1]:5555");
  };
  const size_t slashes = text.compare(0, 2, "//") == 0 ? 2 : 0, colon = text.rfind(':');
  if (colon == std::string::npos || colon <= slashes) throw refuse("no host and port");
  Address address;
  address.pattern = pattern;
  address.binds = pattern == Pattern::Router || pattern == Pattern::Pull || pattern == Pattern::Pub;
  address.host = text.substr(slashes, colon - slashes);
  const std::string digits = text.substr(colon + 1);
  if (digits.empty() || digits.size() > 5 || digits.find_first_not_of("0123456789") != std::string::npos ||
      std::stoul(digits) > 65535)
    throw refuse("'" + digits + "' is not a port");
  address.port = static_cast<uint16_t>(std::stoul(digits));
  if (address.host == "localhost") address.host = "127.0.0.1";
  if (address.host == "*") address.host = "0.0.0.0";
  return address;
}

void check_security(const Address& address, bool insecure) {
  const bool here = address.host.compare(0, 4, "127.") == 0 || address.host == "[::1]";
  if (here || insecure || address.security.own) return;
  throw Error(ErrorKind::Denied, address.str() + " is not local, and without keys the traffic can be read and forged")
      .note(address.binds ? "make keys with 'harmonics keys FILE' and add ?curve=FILE&allow=FILE_OF_PUBLIC_KEYS, or "
                            "use ?insecure=true (--insecure) if the address is protected otherwise"
                          : "make keys with 'harmonics keys FILE' and add ?curve=FILE&server-key=PUBLIC_KEY, or use "
                            "?insecure=true (--insecure) if the address is protected otherwise");
}

}  // namespace harmonics::zmq
