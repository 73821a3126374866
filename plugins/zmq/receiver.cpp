#include "receiver.hpp"

#include <atomic>
#include <deque>
#include <map>
#include <thread>

#include <fmt/format.h>

#include "socket.hpp"

namespace harmonics::zmq {

using wire::Time;

namespace {

constexpr size_t kMostPeers = 1024;
constexpr int kMostAtOnce = 64;                      // messages between two looks at what is to be said
constexpr Time kSilence = std::chrono::seconds(15);  // senders speak every second
constexpr Time kGoodbye = std::chrono::seconds(1);
constexpr auto kLast = std::chrono::milliseconds(100);

wire::InboxOptions with_address(const Address& address, wire::InboxOptions options) {
  if (options.where.empty()) options.where = address.str();
  options.one_way = address.is_one_way();
  return options;
}

}  // namespace

// The socket belongs to the thread.
struct Receiver::Body {
  Body(const Address& a, wire::InboxOptions options)
      : address(a), inbox(with_address(a, options)), socket(a, "", options.limits, 1000) {
    inbox.wake_by([this] { socket.wake(); });
    thread = std::thread([this] { run(); });
  }
  ~Body() {
    inbox.wake_by({});
    leaving = true;
    socket.wake();
    thread.join();
  }

  void run() {
    while (!leaving) {
      socket.wait(wire::Inbox::kTick, !(address.is_one_way() && inbox.is_full()), false);
      turn();
    }
    inbox.poll();
    for (const Time latest = wire::now() + kGoodbye; !address.is_one_way() && wire::now() < latest;) {
      turn();
      if (inbox.say_goodbye()) break;
      socket.wait(std::chrono::milliseconds(5), true, false);
    }
    turn();
    socket.linger(kLast);
  }
  void turn() {
    while (socket.event() != Event::None) {
    }
    for (int i = 0; i < kMostAtOnce && receive(); ++i) {
    }
    flush();
    if (wire::now() - looked > wire::Inbox::kTick) look_for_the_silent();
  }

  bool receive() {
    if (address.is_one_way() && inbox.is_full()) return false;
    Socket::Part part;
    if (!socket.receive(part)) return false;
    uint64_t peer = 1;
    if (address.pattern == Pattern::Router) {
      peer = peer_of(part.bytes);
      if (!part.more || !socket.receive(part)) return true;
    }
    size_t parts = 1;
    for (Socket::Part other; part.more && socket.receive(other); part.more = other.more) ++parts;
    if (parts > 1)
      inbox.damaged(peer, fmt::format("a message of {} parts, and a frame is one", parts));
    else
      inbox.arrived(peer, part.bytes);
    return true;
  }

  struct Peer {
    std::string identity;
    Time heard;
  };
  uint64_t peer_of(const wire::OwnedBytes& bytes) {
    const std::string identity(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.size());
    auto known = numbers.find(identity);
    if (known == numbers.end()) {
      if (peers.size() >= kMostPeers) forget(peers.begin()->first);
      known = numbers.emplace(identity, ++last_peer).first;
      peers[last_peer].identity = identity;
    }
    peers[known->second].heard = wire::now();
    return known->second;
  }
  void forget(uint64_t peer) {
    inbox.left(peer);
    numbers.erase(peers.at(peer).identity);
    peers.erase(peer);
  }
  void look_for_the_silent() {
    looked = wire::now();
    std::vector<uint64_t> silent;
    for (const auto& [peer, p] : peers)
      if (looked - p.heard > kSilence) silent.push_back(peer);
    for (const uint64_t peer : silent) forget(peer);
  }

  void flush() {
    while (auto answer = inbox.poll()) {
      const auto to = peers.find(answer->peer);
      if (to == peers.end()) continue;
      const std::string& identity = to->second.identity;
      const auto* const first = reinterpret_cast<const std::byte*>(identity.data());
      const auto sent = socket.send(wire::owned({first, first + identity.size()}), true);
      if (sent == Socket::Sent::Yes)
        socket.send(wire::owned(std::move(answer->frame)));
      else if (sent == Socket::Sent::Nobody)
        forget(answer->peer);
      // Full: it does not read what it is told; it will ask how things stand.
    }
  }

  Address address;
  wire::Inbox inbox;
  Socket socket;
  std::atomic<bool> leaving{false};
  std::map<std::string, uint64_t> numbers;
  std::map<uint64_t, Peer> peers;
  uint64_t last_peer = 0;
  Time looked{};
  std::thread thread;
};

Receiver::Receiver(const Address& address, wire::InboxOptions options) : body_(std::make_unique<Body>(address, std::move(options))) {}
Receiver::~Receiver() = default;
wire::Inbox& Receiver::inbox() { return body_->inbox; }

uint16_t Receiver::port() const {
  const std::string endpoint = body_->socket.last_endpoint();
  return static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
}

}  // namespace harmonics::zmq
