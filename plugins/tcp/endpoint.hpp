// Where to listen or to connect to.
#pragma once

#include <cstdint>
#include <string>

namespace harmonics::tcp {

struct Endpoint {
  std::string host;
  uint16_t port = 0;

  std::string str() const { return "tcp:" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port); }
};

// HOST:PORT of this machine alone: what is sent is neither encrypted nor is its sender known. Errors: Usage, Denied.
Endpoint parse_endpoint(const std::string& text);

}  // namespace harmonics::tcp
