#include "engine/cli/remote/http_client.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/serving/control_socket.hpp"

namespace harmonics::engine::cli {

namespace {

struct HttpAddress {
  std::string host, port;
};

HttpAddress place_of(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const size_t end = std::min(url.find('/', kScheme.size()), url.size());
  const std::string authority = url.substr(std::min(kScheme.size(), url.size()), end - std::min(kScheme.size(), end));
  const size_t colon = authority.rfind(':');
  if (!url.starts_with(kScheme) || colon == std::string::npos || colon == 0 || colon + 1 == authority.size())
    throw Error(ErrorKind::Usage, fmt::format("'{}' is no address of a run", url), {},
                {"write http://127.0.0.1:8080, or the path of its control socket"});
  std::string host = authority.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, authority.substr(colon + 1)};
}

class Socket {
 public:
  Socket(const std::string& url, const HttpAddress& place, double seconds)
      : url_(url),
        deadline_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int failed = ::getaddrinfo(place.host.c_str(), place.port.c_str(), &hints, &found); failed != 0)
      throw Error(ErrorKind::Unavailable, fmt::format("'{}' is not known: {}", place.host, ::gai_strerror(failed)));
    int reason = ECONNREFUSED;
    for (const addrinfo* a = found; a && socket_ < 0; a = a->ai_next) {
      socket_ = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (socket_ >= 0 && !connects(*a)) reason = errno, ::close(socket_), socket_ = -1;
    }
    ::freeaddrinfo(found);
    if (socket_ < 0)
      throw Error(ErrorKind::Unavailable, fmt::format("no run answers on {}: {}", url, std::strerror(reason)), {},
                  {"a run answers there when it is started with --serve"});
  }
  ~Socket() { ::close(socket_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      wait(POLLOUT);
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0)
        bytes.remove_prefix(static_cast<size_t>(n));
      else if (errno != EAGAIN && errno != EINTR)
        throw gone();
    }
  }
  // Reads until the peer closes the connection: at most `most` bytes, within the time limit of the request.
  std::string receive(size_t most) {
    std::string all;
    char piece[4096];
    for (;;) {
      wait(POLLIN);
      const ssize_t n = ::recv(socket_, piece, sizeof piece, 0);
      if (n == 0) return all;
      if (n > 0)
        all.append(piece, static_cast<size_t>(n));
      else if (errno != EAGAIN && errno != EINTR)
        throw gone();
      if (all.size() > most)
        throw Error(ErrorKind::Unavailable, fmt::format("{} answers with more than {} MiB", url_, most >> 20), {},
                    {"it is no run of harmonics, or a smaller part has to be asked for"});
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool connects(const addrinfo& a) {
    if (::connect(socket_, a.ai_addr, a.ai_addrlen) == 0) return true;
    if (errno != EINPROGRESS) return false;
    wait(POLLOUT);
    socklen_t size = sizeof errno;
    return ::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &errno, &size) == 0 && errno == 0;
  }
  void wait(short what) {
    pollfd ready{socket_, what, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left) + 1) == 0)
      throw Error(ErrorKind::Unavailable, fmt::format("{} does not answer", url_), {},
                  {"it may be writing a checkpoint; ask again"});
  }
  Error gone() const { return Error(ErrorKind::Unavailable, fmt::format("{} went away", url_)); }

  const std::string& url_;
  const Clock::time_point deadline_;
  int socket_ = -1;
};

}  // namespace

HttpAnswer http_request(const std::string& url, const std::string& method, const std::string& path,
                        const std::string& token, const std::string& body, double seconds) {
  const HttpAddress place = place_of(url);
  Socket socket(url, place, seconds);
  const bool v6 = place.host.find(':') != std::string::npos;
  socket.send(
      fmt::format("{} {} HTTP/1.1\r\nHost: {}:{}\r\nConnection: close\r\nContent-Type: "
                  "application/json\r\nContent-Length: {}\r\n{}\r\n{}",
                  method, path, v6 ? "[" + place.host + "]" : place.host, place.port, body.size(),
                  token.empty() ? "" : "Authorization: Bearer " + token + "\r\n", body));
  const std::string all = socket.receive(kMostReplyBytes);
  const size_t end = all.find("\r\n\r\n");
  HttpAnswer answer;
  if (all.rfind("HTTP/1.1 ", 0) == 0) answer.status = std::atoi(all.c_str() + 9);
  if (end == std::string::npos || answer.status == 0)
    throw Error(ErrorKind::Unavailable, fmt::format("what answers on {} is no run of harmonics", url));
  answer.body = all.substr(end + 4);
  return answer;
}

}  // namespace harmonics::engine::cli
