// A socket client for texts.
#pragma once

#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace harmonics::engine::testing {

// Sends requests, and receives until `holds` is true.
class TextClient {
 public:
  explicit TextClient(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    REQUIRE(::connect(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  }
  ~TextClient() { ::close(socket_); }
  // Lets the destructor send RST instead of FIN, as the system does for a program that is killed with unread data.
  void abort_at_end() {
    const linger at_once{1, 0};
    REQUIRE(::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0);
  }
  TextClient(const TextClient&) = delete;
  TextClient& operator=(const TextClient&) = delete;
  void post(const std::string& path, const std::string& body) {
    const std::string bytes = "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n" +
                              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    send(bytes);
  }
  void send(const std::string& bytes) {
    REQUIRE(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  std::string hear(const std::function<bool(const std::string&)>& holds) {
    while (!holds(heard_)) {
      pollfd ready{socket_, POLLIN, 0};
      if (::poll(&ready, 1, 60000) <= 0) break;
      char piece[4096];
      const ssize_t n = ::recv(socket_, piece, sizeof piece, 0);
      if (n <= 0) break;
      heard_.append(piece, static_cast<size_t>(n));
    }
    return std::exchange(heard_, "");
  }

 private:
  int socket_;
  std::string heard_;
};

}  // namespace harmonics::engine::testing
