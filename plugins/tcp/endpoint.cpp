#include "endpoint.hpp"

#include <harmonics/error.hpp>

namespace harmonics::tcp {

Endpoint parse_endpoint(const std::string& text) {
  const auto refuse = [&](const std::string& what) -> Error {
    return Error(ErrorKind::Usage, "tcp:" + text + ": " + what).note("write tcp:127.0.0.1:5555, or tcp:[::1]:5555");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) throw refuse("no host and port");
  Endpoint endpoint{text.substr(0, colon), 0};
  const std::string digits = text.substr(colon + 1);
  uint32_t port = 0;
  for (char c : digits) {
    if (c < '0' || c > '9' || port > 65535) throw refuse("'" + digits + "' is no port");
    port = port * 10 + static_cast<uint32_t>(c - '0');
  }
  if (digits.empty() || port > 65535) throw refuse("'" + digits + "' is no port");
  endpoint.port = static_cast<uint16_t>(port);
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']')
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  if (endpoint.host == "localhost") endpoint.host = "127.0.0.1";
  if (endpoint.host.compare(0, 4, "127.") != 0 && endpoint.host != "::1")
    throw Error(ErrorKind::Denied, "tcp:" + text + " lies beyond this machine, and nothing on the way is encrypted")
        .note("use 127.0.0.1, and a tunnel (ssh -L) between machines");
  return endpoint;
}

}  // namespace harmonics::tcp
