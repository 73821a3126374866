// HttpServer: serves an HttpHandler over HTTP/1.1 and WebSocket. Only its source file includes Boost.Beast.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/serving/service.hpp"

namespace harmonics::engine {

struct ListenAddress {
  std::string host;
  uint16_t port = 0;
  bool loopback = true;
};
// Parses "127.0.0.1:8080", "[::1]:0", "0.0.0.0:80": numeric addresses and localhost. Throws ErrorKind::Usage.
ListenAddress parse_listen(const std::string& text);

struct HttpLimits {
  uint64_t body = uint64_t{8} << 20;
  uint32_t header = 32 << 10, message = 1 << 10;  // message: of WebSocket clients
  size_t connections = 64, listeners = 16;        // listeners: of /v1/events
  std::chrono::milliseconds request{10000}, idle{30000}, write{10000};
};

class HttpServer {
 public:
  // Listens when the constructor returns. Throws ErrorKind::Unavailable if the address cannot be bound.
  HttpServer(HttpHandler& handler, const ListenAddress& address, const HttpLimits& limits = {});
  // Creates a server that neither listens nor has a thread: work() serves the sockets passed to take().
  HttpServer(HttpHandler& handler, const HttpLimits& limits);
  ~HttpServer();  // closes all connections; no further replies are sent
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const;  // "http://127.0.0.1:43121"
  uint16_t port() const;
  // Takes no further connections, and waits until every request in progress has its whole reply, up to this time.
  // Returns whether all have.
  bool finish(std::chrono::milliseconds most);
  // Takes ownership of a connected stream socket.
  void take(int socket);
  // For a server without a thread: does all work that is possible without blocking. `now` is the time for events, and
  // must not decrease.
  void work(std::chrono::steady_clock::time_point now);

 private:
  class Running;
  std::shared_ptr<Running> running_;
};

}  // namespace harmonics::engine
