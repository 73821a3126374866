#include "engine/serving/control_socket.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/serving/event_feed.hpp"
#include "engine/serving/json_text.hpp"

namespace harmonics::engine {

namespace {

constexpr int kWaiting = 128;  // backlog of connections
constexpr int kLook = 100;     // milliseconds between checks for shutdown

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    throw Error(ErrorKind::Usage, fmt::format("'{}' is not a path for a socket", path), {},
                {fmt::format("it may have 1 to {} bytes", sizeof address.sun_path - 1)});
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

bool connects(const sockaddr_un& address, int socket) {
  return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Sends all bytes within `milliseconds`; returns false on failure.
bool send_all(int socket, std::string_view bytes, int milliseconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return false;
    if (std::chrono::steady_clock::now() > deadline) return false;
    pollfd ready{socket, POLLOUT, 0};
    ::poll(&ready, 1, kLook);
  }
  return true;
}

std::string line_of(const boost::json::object& o) { return json_line(o) + "\n"; }

}  // namespace

ControlSocket::ControlSocket(Service& service, std::string path) : service_(service), path_(std::move(path)) {
  listen();
  thread_ = std::thread([this] { accept(); });
}

void ControlSocket::listen() {
  const sockaddr_un address = address_of(path_);
  const auto failed = [&](const char* what) {
    const int reason = errno;
    if (socket_ >= 0) ::close(socket_);
    throw Error(kind_of_failure(reason, ErrorKind::Output),
                fmt::format("cannot {} '{}': {}", what, path_, std::strerror(reason)), {},
                {"give --control a path in a folder that you own"});
  };
  struct stat there {};
  if (::lstat(path_.c_str(), &there) == 0) {
    if (!S_ISSOCK(there.st_mode))
      throw Error(ErrorKind::Output, fmt::format("'{}' exists and is not a socket", path_), {},
                  {"give --control another path"});
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool alive = probe >= 0 && connects(address, probe);
    if (probe >= 0) ::close(probe);
    if (alive)
      throw Error(ErrorKind::Output, fmt::format("another run listens on '{}'", path_), {},
                  {"give --control another path"});
    ::unlink(path_.c_str());
  }
  socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) failed("create the socket");
  // bind() creates the path with the mode of the descriptor; no client can connect before listen().
  if (::fchmod(socket_, 0600) != 0) failed("restrict access to");
  if (::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) failed("bind");
  if (::chmod(path_.c_str(), 0600) != 0 || ::listen(socket_, kWaiting) != 0) failed("listen on");
  if (::pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0) failed("wait for");
}

ControlSocket::~ControlSocket() {
  over_ = true;
  [[maybe_unused]] const ssize_t told = ::write(wake_[1], "", 1);
  thread_.join();
  for (const int end : wake_) ::close(end);
  ::close(socket_);
  ::unlink(path_.c_str());
}

void ControlSocket::accept() {
  const auto reap = [this](bool all) {
    for (auto at = clients_.begin(); at != clients_.end();) {
      if (!all && !at->gone) {
        ++at;
        continue;
      }
      at->thread.join();
      ::close(at->socket);
      at = clients_.erase(at);
    }
  };
  while (!over_) {
    // While all client slots are in use, further clients wait in the backlog.
    pollfd ready[] = {{wake_[0], POLLIN, 0}, {socket_, POLLIN, 0}};
    ::poll(ready, clients_.size() < kClients ? 2 : 1, -1);
    char gone[kClients];
    while (::read(wake_[0], gone, sizeof gone) > 0) {
    }
    reap(false);
    if (over_ || clients_.size() >= kClients || !(ready[1].revents & POLLIN)) continue;
    const int client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      if (errno == EMFILE || errno == ENFILE) ::poll(nullptr, 0, kLook);
      continue;
    }
    Client& c = clients_.emplace_back();
    c.socket = client;
    c.thread = std::thread([this, &c] { serve(c); });
  }
  reap(true);
}

void ControlSocket::serve(Client& client) {
  std::string text;
  char piece[1024];
  bool goes_on = true;
  while (goes_on && !over_) {
    pollfd ready{client.socket, POLLIN, 0};
    if (::poll(&ready, 1, kLook) <= 0) continue;
    const ssize_t n = ::recv(client.socket, piece, sizeof piece, 0);
    if (n <= 0) break;
    text.append(piece, static_cast<size_t>(n));
    for (size_t end = text.find('\n'); goes_on && end != std::string::npos; end = text.find('\n')) {
      const std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      ControlRequest request;
      try {
        request = control_from_json(line);
      } catch (const Error&) {  // reported by control()
      }
      if (request.what == ControlRequest::Do::events)
        goes_on = follow(client.socket);
      else
        goes_on = send_all(
            client.socket,
            request.what == ControlRequest::Do::get ? look(request.path) : line_of(service_.control(line)), 10000);
    }
    if (text.size() > kLongestLine) {
      send_all(client.socket,
               line_of({{"error", fmt::format("a line of more than {} bytes", kLongestLine)},
                        {"note", "end every message with a new line"}}),
               kLook);
      break;
    }
  }
  ::shutdown(client.socket, SHUT_RDWR);
  client.gone = true;
  [[maybe_unused]] const ssize_t told = ::write(wake_[1], "", 1);  // if the pipe is full, the thread wakes up anyway
}

// Returns the reply to a GET request as one line. Requests are trusted, since only the run's owner can open the socket.
std::string ControlSocket::look(const std::string& path) {
  constexpr int kLongestLook = 10000;
  ServiceRequest request;
  request.method = "GET";
  request.trusted = true;
  if (!parse_target(path, request)) return line_of({{"error", "the path is malformed"}, {"note", Service::paths()}});
  const auto promise = std::make_shared<std::promise<std::string>>();
  std::future<std::string> reply = promise->get_future();
  service_.handle(std::move(request), [promise](const ServiceReply& r) {
    promise->set_value(r.status < 400 ? r.body : fmt::format("{{\"code\":{},{}", r.status, r.body.substr(1)));
  });
  for (int waited = 0; waited < kLongestLook && !over_; waited += kLook)
    if (reply.wait_for(std::chrono::milliseconds(kLook)) == std::future_status::ready) return reply.get();
  return line_of({{"error", "too many requests"}, {"note", "ask again"}, {"code", 503}});
}

// Sends events until the client disconnects.
bool ControlSocket::follow(int socket) {
  EventFeed feed(service_, {});
  std::string left;  // not yet sent
  while (!over_) {
    for (std::string& message : feed.tick(EventFeed::Clock::now(), left.empty())) left += message + "\n";
    while (!left.empty()) {
      const ssize_t n = ::send(socket, left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (n <= 0) break;
      left.erase(0, static_cast<size_t>(n));
    }
    pollfd there{socket, POLLIN, 0};
    char said[256];
    if (::poll(&there, 1, static_cast<int>(EventFeed::kTick.count())) > 0 && ::recv(socket, said, sizeof said, 0) <= 0)
      return false;
  }
  return false;
}

ControlClient::ControlClient(const std::string& path) : path_(path) {
  const sockaddr_un address = address_of(path);
  socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket_ >= 0 && connects(address, socket_)) return;
  const int reason = errno;
  if (socket_ >= 0) ::close(socket_);
  throw Error(reason == EACCES ? ErrorKind::Denied : ErrorKind::Unavailable,
              fmt::format("no run answers on '{}': {}", path, std::strerror(reason)), {},
              {"a run listens there when it is started with --control " + path});
}

ControlClient::~ControlClient() { ::close(socket_); }

void ControlClient::say(const std::string& message) {
  if (!send_all(socket_, message + "\n", 10000))
    throw Error(ErrorKind::Unavailable, fmt::format("the run on '{}' closed the connection", path_));
}

std::string ControlClient::hear(double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  char piece[4096];
  size_t end = 0, searched = 0;
  while ((end = heard_.find('\n', searched)) == std::string::npos) {
    searched = heard_.size();
    if (searched > kMostReplyBytes)
      throw Error(ErrorKind::Unavailable,
                  fmt::format("'{}' answers with a line of more than {} MiB", path_, kMostReplyBytes >> 20), {},
                  {"it is not a harmonics run, or the reply is too large: request less"});
    const double left = std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0)
      throw Error(ErrorKind::Unavailable, fmt::format("the run on '{}' has not answered in {:g} s", path_, seconds), {},
                  {"it may be writing a checkpoint; try again"});
    pollfd ready{socket_, POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left * 1000) + 1) <= 0) continue;
    const ssize_t n = ::recv(socket_, piece, sizeof piece, 0);
    if (n <= 0) throw Error(ErrorKind::Unavailable, fmt::format("the run on '{}' has ended", path_));
    heard_.append(piece, static_cast<size_t>(n));
  }
  std::string line = heard_.substr(0, end);
  heard_.erase(0, end + 1);
  return line;
}

}  // namespace harmonics::engine
