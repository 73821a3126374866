#include "endpoint.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <harmonics/error.hpp>

namespace harmonics::sockets {

namespace {
constexpr size_t kMostPath = 107;  // sockaddr_un has 108 bytes
}

std::string Endpoint::str() const {
  if (is_unix()) return "unix:" + path;
  return "tcp:" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

Endpoint tcp_endpoint(const std::string& text, bool insecure) {
  const auto refuse = [&](const std::string& what) -> Error {
    return Error(ErrorKind::Usage, "tcp:" + text + ": " + what).note("write tcp:127.0.0.1:5555, or tcp:[::1]:5555");
  };
  const size_t slashes = text.compare(0, 2, "//") == 0 ? 2 : 0, colon = text.rfind(':');
  if (colon == std::string::npos || colon <= slashes) throw refuse("no host and port");
  Endpoint endpoint;
  endpoint.host = text.substr(slashes, colon - slashes);
  const std::string digits = text.substr(colon + 1);
  uint32_t port = 0;
  for (char c : digits) {
    if (c < '0' || c > '9' || port > 65535) throw refuse("'" + digits + "' is not a port");
    port = port * 10 + static_cast<uint32_t>(c - '0');
  }
  if (digits.empty() || port > 65535) throw refuse("'" + digits + "' is not a port");
  endpoint.port = static_cast<uint16_t>(port);
  if (endpoint.host.size() > 2 && endpoint.host.front() == '[' && endpoint.host.back() == ']')
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  if (endpoint.host == "localhost") endpoint.host = "127.0.0.1";
  if (endpoint.host == "*") endpoint.host = "0.0.0.0";
  if (!insecure && endpoint.host.compare(0, 4, "127.") != 0 && endpoint.host != "::1")
    throw Error(ErrorKind::Denied, "tcp:" + text + " is not local, and the traffic can be read and forged")
        .note(
            "use 127.0.0.1 and a tunnel (ssh -L) between machines, zmq+router: with ?curve=KEYS, or ?insecure=true "
            "(--insecure) if the address is protected otherwise");
  return endpoint;
}

Endpoint unix_endpoint(const std::string& text) {
  Endpoint endpoint;
  endpoint.path = text.compare(0, 2, "//") == 0 ? text.substr(2) : text;
  if (endpoint.path.empty() || endpoint.path.size() > kMostPath)
    throw Error(ErrorKind::Usage, "unix:" + text + ": a socket's path has 1 to " + std::to_string(kMostPath) + " bytes")
        .note("write unix:/run/user/1000/samples");
  return endpoint;
}

void send_at_once(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

}  // namespace harmonics::sockets
