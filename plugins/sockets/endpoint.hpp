// Where to listen or to connect to.
#pragma once

#include <cstdint>
#include <string>

namespace harmonics::sockets {

// A port of this or another machine, or a path of this one.
struct Endpoint {
  std::string host;
  uint16_t port = 0;
  std::string path;  // "": TCP

  bool is_unix() const { return !path.empty(); }
  std::string str() const;
};

// HOST:PORT, with // before it or without. Beyond this machine only when `insecure`: nothing on the way is encrypted,
// and nobody is known. Errors: Usage, Denied.
Endpoint tcp_endpoint(const std::string& text, bool insecure = false);
// A path that a socket may have.
Endpoint unix_endpoint(const std::string& text);

// Of a TCP socket: frames do not wait for one another.
void send_at_once(int socket);

}  // namespace harmonics::sockets
