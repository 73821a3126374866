// The address to listen on or connect to.
#pragma once

#include <cstdint>
#include <string>

namespace harmonics::sockets {

// A TCP port, local or remote, or the path of a Unix socket.
struct Endpoint {
  std::string host;
  uint16_t port = 0;
  std::string path;  // "": TCP

  bool is_unix() const { return !path.empty(); }
  std::string str() const;
};

// Parses HOST:PORT, with or without //. Other machines need `insecure`: the connection is neither encrypted nor
// authenticated. Errors: Usage, Denied.
Endpoint tcp_endpoint(const std::string& text, bool insecure = false);
// Checks that a socket can have this path.
Endpoint unix_endpoint(const std::string& text);

// Disables Nagle's algorithm on a TCP socket.
void send_at_once(int socket);

}  // namespace harmonics::sockets
