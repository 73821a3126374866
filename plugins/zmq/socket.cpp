#include "socket.hpp"

#include <zmq.h>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <harmonics/error.hpp>

namespace harmonics::zmq {
namespace {

constexpr const char* kMonitor = "inproc://harmonics.monitor";
constexpr const char* kGate = "inproc://zeromq.zap.01";  // from ZeroMQ RFC 27
constexpr int kEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                        ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_ACCEPT_FAILED;

bool is_receiver(Pattern pattern) {
  return pattern == Pattern::Router || pattern == Pattern::Pull || pattern == Pattern::Sub;
}

int type_of(Pattern pattern) {
  switch (pattern) {
    case Pattern::Router:
      return ZMQ_ROUTER;
    case Pattern::Dealer:
      return ZMQ_DEALER;
    case Pattern::Pull:
      return ZMQ_PULL;
    case Pattern::Push:
      return ZMQ_PUSH;
    case Pattern::Sub:
      return ZMQ_SUB;
    case Pattern::Pub:
      return ZMQ_XPUB;  // XPUB reports subscribers
  }
  return -1;
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::Stream, what + ": " + zmq_strerror(zmq_errno()));
}

struct Message {
  Message() { zmq_msg_init(&message); }
  ~Message() { zmq_msg_close(&message); }
  Message(const Message&) = delete;
  zmq_msg_t message;
};

void release(void*, void* owner) { delete static_cast<wire::OwnedBytes*>(owner); }

std::string text_of(const zmq_msg_t& message) {
  auto& m = const_cast<zmq_msg_t&>(message);
  return {static_cast<const char*>(zmq_msg_data(&m)), zmq_msg_size(&m)};
}

}  // namespace

Socket::Socket(const Address& address, const std::string& identity, const wire::Limits& limits, int most_queued)
    : security_(address.security) {
  context_ = zmq_ctx_new();
  socket_ = zmq_socket(context_, type_of(address.pattern));
  if (!socket_) fail("a ZeroMQ socket");
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int64_t most = static_cast<int64_t>(limits.frame_bytes);
  zmq_setsockopt(socket_, ZMQ_MAXMSGSIZE, &most, sizeof most);
  set(ZMQ_LINGER, 0);
  // Messages are queued for connected peers only. In a receiver, libzmq would drop the messages of a peer that were not
  // read before it disconnected.
  set(ZMQ_IMMEDIATE, is_receiver(address.pattern) ? 0 : 1);
  set(ZMQ_IPV6, 1);
  set(ZMQ_SNDHWM, most_queued);
  set(ZMQ_RCVHWM, most_queued);
  set(ZMQ_HANDSHAKE_IVL, 5000);
  set(ZMQ_RECONNECT_IVL, 100);
  set(ZMQ_RECONNECT_IVL_MAX, 1000);
  set(ZMQ_CONNECT_TIMEOUT, 5000);
  // libzmq's heartbeats are off: when one is due for a dead peer whose messages wait for room here, an assertion ends
  // the process (libzmq 4.3). Sessions detect silence themselves; for other patterns TCP keep-alive does.
  set(ZMQ_TCP_KEEPALIVE, 1);
  set(ZMQ_TCP_KEEPALIVE_IDLE, 5);
  set(ZMQ_TCP_KEEPALIVE_INTVL, 1);
  set(ZMQ_TCP_KEEPALIVE_CNT, 5);
  set(ZMQ_TCP_MAXRT, 10000);
  set(ZMQ_SNDTIMEO, 0);
  if (address.pattern == Pattern::Router) set(ZMQ_ROUTER_MANDATORY, 1), set(ZMQ_ROUTER_HANDOVER, 1);
  if (address.pattern == Pattern::Sub) set(ZMQ_SUBSCRIBE, std::string());
  if (!identity.empty() && address.pattern == Pattern::Dealer) set(ZMQ_ROUTING_ID, identity);
  secure(address);
  zmq_socket_monitor(socket_, kMonitor, kEvents);
  monitor_ = zmq_socket(context_, ZMQ_PAIR);
  zmq_connect(monitor_, kMonitor);
  const std::string endpoint = address.endpoint();
  if ((address.binds ? zmq_bind(socket_, endpoint.c_str()) : zmq_connect(socket_, endpoint.c_str())) == 0) {
    if (address.binds) endpoint_ = last_endpoint();
    return;
  }
  const bool taken = zmq_errno() == EADDRINUSE;
  const std::string reason = zmq_strerror(zmq_errno());
  close();
  throw Error(taken ? ErrorKind::Unavailable : ErrorKind::Stream,
              address.str() + (address.binds ? " cannot be listened on: " : " cannot be connected to: ") + reason)
      .note(address.binds ? "choose another port, or stop the process that has it"
                          : "write an address like 127.0.0.1:5555");
}

Socket::~Socket() { close(); }

bool Socket::has_descriptors() {
  constexpr size_t kNeeded = 16;
  std::vector<int> spare;
  while (spare.size() < kNeeded) {
    const int descriptor = eventfd(0, EFD_CLOEXEC);
    if (descriptor < 0) break;
    spare.push_back(descriptor);
  }
  for (const int descriptor : spare) ::close(descriptor);
  return spare.size() == kNeeded;
}

void Socket::close() {
  if (!context_) return;
  zmq_socket_monitor(socket_, nullptr, 0);
  if (monitor_) zmq_close(std::exchange(monitor_, nullptr));
  zmq_close(std::exchange(socket_, nullptr));
  zmq_ctx_shutdown(context_);  // ends the guard
  if (guard_.joinable()) guard_.join();
  zmq_ctx_term(std::exchange(context_, nullptr));
  ::close(wake_);
}

void Socket::set(int option, int value) {
  if (zmq_setsockopt(socket_, option, &value, sizeof value) != 0)
    fail(fmt::format("option {} of a ZeroMQ socket", option));
}
void Socket::set(int option, const std::string& value) {
  if (zmq_setsockopt(socket_, option, value.data(), value.size()) != 0)
    fail(fmt::format("option {} of a ZeroMQ socket", option));
}
void Socket::linger(std::chrono::milliseconds most) { set(ZMQ_LINGER, static_cast<int>(most.count())); }

void Socket::secure(const Address& address) {
  if (!security_.own) return;
  set(ZMQ_CURVE_PUBLICKEY, security_.own->public_key);
  set(ZMQ_CURVE_SECRETKEY, security_.own->secret_key);
  if (!address.binds) return set(ZMQ_CURVE_SERVERKEY, security_.server.value());
  set(ZMQ_CURVE_SERVER, 1);
  set(ZMQ_ZAP_DOMAIN, std::string("harmonics"));
  gate_ = zmq_socket(context_, ZMQ_REP);
  if (zmq_bind(gate_, kGate) != 0) fail("the key check");
  guard_ = std::thread([this] { guard(); });
}

// Answers libzmq's access requests until the context ends.
void Socket::guard() {
  for (bool open = true; open;) {
    std::vector<std::string> parts;
    for (bool more = true; more && open;) {
      Message part;
      open = zmq_msg_recv(&part.message, gate_, 0) >= 0;
      if (!open) break;
      parts.push_back(text_of(part.message));
      more = zmq_msg_more(&part.message) != 0;
    }
    if (!open) break;
    const std::vector<std::string> answer = wire::admission(parts, security_.allowed);
    for (size_t i = 0; i < answer.size(); ++i)
      open &= zmq_send(gate_, answer[i].data(), answer[i].size(), i + 1 < answer.size() ? ZMQ_SNDMORE : 0) >= 0;
  }
  zmq_close(gate_);
}

std::string Socket::last_endpoint() const {
  char text[256];
  size_t size = sizeof text;
  return zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, text, &size) == 0 ? text : "";
}

void Socket::wait(std::chrono::nanoseconds most, bool for_messages, bool for_room) {
  const auto events = static_cast<short>((for_messages ? ZMQ_POLLIN : 0) | (for_room ? ZMQ_POLLOUT : 0));
  zmq_pollitem_t items[] = {{nullptr, wake_, ZMQ_POLLIN, 0}, {monitor_, 0, ZMQ_POLLIN, 0}, {socket_, 0, events, 0}};
  zmq_poll(items, events ? 3 : 2, static_cast<long>((most.count() + 999999) / 1000000));
  if (!(items[0].revents & ZMQ_POLLIN)) return;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(wake_, &count, sizeof count);
  woken_ = false;  // after the read, which could otherwise consume a pending wake-up
}

void Socket::wake() {
  if (woken_.exchange(true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_, &one, sizeof one);
}

bool Socket::receive(Part& part) {
  const auto message = std::make_shared<Message>();
  if (zmq_msg_recv(&message->message, socket_, ZMQ_DONTWAIT) < 0) return false;
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(zmq_msg_data(&message->message)),
                                         zmq_msg_size(&message->message));
  part.more = zmq_msg_more(&message->message) != 0;
  part.descriptor = zmq_msg_get(&message->message, ZMQ_SRCFD);
  if (!security_.names.empty()) {
    const char* const key = zmq_msg_gets(&message->message, "User-Id");
    key_ = key ? key : "";
  }
  part.bytes = {message, bytes};
  return true;
}

Socket::Sent Socket::send(const wire::OwnedBytes& bytes, bool more) {
  Message message;
  auto* const owner = new wire::OwnedBytes(bytes);
  zmq_msg_init_data(&message.message, const_cast<std::byte*>(bytes.bytes.data()), bytes.size(), release, owner);
  if (zmq_msg_send(&message.message, socket_, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0) return Sent::Yes;
  return zmq_errno() == EAGAIN ? Sent::Full : Sent::Nobody;
}

Event Socket::event() {
  Message first;
  if (zmq_msg_recv(&first.message, monitor_, ZMQ_DONTWAIT) < 0) return {};
  uint16_t what = 0;
  int32_t value = 0;
  const auto* const bytes = static_cast<const char*>(zmq_msg_data(&first.message));
  std::memcpy(&what, bytes, sizeof what);
  std::memcpy(&value, bytes + sizeof what, sizeof value);
  Message address;
  zmq_msg_recv(&address.message, monitor_, 0);
  switch (what) {
    case ZMQ_EVENT_ACCEPTED:
      return {Event::Accepted, value};
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      return {Event::Connected, value};
    case ZMQ_EVENT_DISCONNECTED:
      return {Event::Disconnected, value};
    case ZMQ_EVENT_ACCEPT_FAILED:
      return {Event::Full, -1};
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      return {Event::Refused, -1};
    default:
      return {Event::Foreign, -1};
  }
}

// Closes a single connection, for which libzmq has no function. The descriptor may have been reused: it is closed only
// if it belongs to this socket's port.
void Socket::hang_up(int descriptor) const {
  sockaddr_storage place{};
  socklen_t size = sizeof place;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&place), &size) != 0) return;
  uint16_t port = 0;
  if (place.ss_family == AF_INET) port = ntohs(reinterpret_cast<const sockaddr_in&>(place).sin_port);
  if (place.ss_family == AF_INET6) port = ntohs(reinterpret_cast<const sockaddr_in6&>(place).sin6_port);
  if (port != 0 && std::to_string(port) == endpoint_.substr(endpoint_.rfind(':') + 1)) shutdown(descriptor, SHUT_RDWR);
}

bool Socket::listen(bool yes) {
  return (yes ? zmq_bind(socket_, endpoint_.c_str()) : zmq_unbind(socket_, endpoint_.c_str())) == 0;
}

}  // namespace harmonics::zmq
