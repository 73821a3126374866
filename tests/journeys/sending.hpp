// Sends samples like programs without our libraries: through sockets, byte by byte.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "tests/journeys/shell.hpp"

namespace journeys {

// Returns a port that is unused at this moment.
inline std::string unused_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  REQUIRE(::bind(s, reinterpret_cast<sockaddr*>(&place), size) == 0);
  REQUIRE(::getsockname(s, reinterpret_cast<sockaddr*>(&place), &size) == 0);
  ::close(s);
  return std::to_string(ntohs(place.sin_port));
}

class Connected {
 public:
  // Connects to a port of this machine or a Unix socket. Retries for at most half a minute.
  explicit Connected(const std::string& where) {
    const bool is_unix = where.find('/') != std::string::npos;
    for (int i = 0; i < 3000; ++i) {
      socket_ = ::socket(is_unix ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if ((is_unix ? to_path(where) : to_port(where)) == 0) return;
      ::close(socket_);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL("nobody listens at " << where);
  }
  ~Connected() { ::close(socket_); }
  Connected(const Connected&) = delete;
  void send(const std::string& bytes) const {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return;
      at += static_cast<size_t>(n);
    }
  }
  // Reads up to this text, or the end.
  std::string receive_until(const std::string& text) const {
    std::string all;
    for (char c = 0; !all.ends_with(text) && ::recv(socket_, &c, 1, 0) == 1;) all += c;
    return all;
  }
  std::string receive() const {
    std::string all;
    char piece[4096];
    for (ssize_t n = 0; (n = ::recv(socket_, piece, sizeof piece, 0)) > 0;) all.append(piece, static_cast<size_t>(n));
    return all;
  }

 private:
  int to_port(const std::string& port) const {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
    return ::connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof place);
  }
  int to_path(const std::string& path) const {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    path.copy(place.sun_path, sizeof place.sun_path - 1);
    return ::connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof place);
  }
  int socket_ = -1;
};

// Returns the whole answer to a request with this body.
inline std::string posted(const std::string& port, const std::string& path, const std::string& type,
                          const std::string& token, const std::string& body) {
  const Connected to(port);
  to.send("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: " + type +
          (token.empty() ? "" : "\r\nAuthorization: Bearer " + token) +
          "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  return to.receive();
}

// Builds a text message of a WebSocket client.
inline std::string websocket_text(const std::string& text) {
  const std::string size = {static_cast<char>(text.size() >> 8), static_cast<char>(text.size())};
  return "\x81\xfe" + size + std::string(4, '\0') + text;
}

}  // namespace journeys
