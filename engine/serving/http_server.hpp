// HttpServer: a Service behind HTTP/1.1 and WebSocket. The source behind it is the one that sees Boost.Beast.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/serving/service.hpp"

namespace harmonics {

struct ListenAddress {
  std::string host;
  uint16_t port = 0;
  bool loopback = true;
};
// "127.0.0.1:8080", "[::1]:0", "0.0.0.0:80": numbers and localhost; throws ErrorKind::Usage.
ListenAddress parse_listen(const std::string& text);

struct HttpLimits {
  uint64_t body = uint64_t{8} << 20;
  uint32_t header = 8 << 10, message = 1 << 10;  // of WebSocket: what clients send
  size_t connections = 64, listeners = 16;       // of /v1/events
  std::chrono::milliseconds request{10000}, idle{30000}, write{10000};
};

class HttpServer {
 public:
  // Listens when it returns. ErrorKind::Unavailable when the address cannot be had.
  HttpServer(Service& service, const ListenAddress& address, const HttpLimits& limits = {});
  // Listens nowhere and has no thread: whom take() gave it is served by work() alone.
  HttpServer(Service& service, const HttpLimits& limits);
  ~HttpServer();  // closes everything; nobody is answered any more
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const;  // "http://127.0.0.1:43121"
  uint16_t port() const;
  // A connected stream socket, whoever accepted it: the server's own from now on.
  void take(int socket);
  // Of a server without a thread: does all that can be done without waiting. `now`: the time that events go by, which
  // never goes back.
  void work(std::chrono::steady_clock::time_point now);

 private:
  class Running;
  std::shared_ptr<Running> running_;
};

}  // namespace harmonics
