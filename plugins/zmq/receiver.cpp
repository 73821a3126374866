#include "receiver.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "connections.hpp"
#include "socket.hpp"
#include "wire/freed_memory.hpp"

namespace harmonics::zmq {

using wire::Time;

namespace {

constexpr size_t kMostPeers = 1024;
constexpr int kMostAtOnce = 64;  // messages between two polls of the inbox
constexpr auto kGather =
    std::chrono::microseconds(50);  // messages at shorter intervals are taken together: a wake-up costs more than one
constexpr Time kSilence = std::chrono::seconds(15);      // senders send at least every second
constexpr Time kFirst = std::chrono::seconds(5);         // time for the first frame
constexpr Time kPause = std::chrono::milliseconds(200);  // pause without accepting when descriptors have run out
constexpr Time kAlone = std::chrono::seconds(3);         // equal to the sender's
constexpr Time kGoodbye = std::chrono::seconds(1);
constexpr auto kLast = std::chrono::milliseconds(100);

wire::InboxOptions with_address(const Address& address, wire::InboxOptions options) {
  if (options.where.empty()) options.where = address.str();
  options.one_way = address.is_one_way();
  return options;
}

}  // namespace

// The socket is used by its thread only.
struct Receiver::Body {
  Body(const Address& a, wire::InboxOptions options)
      : address(a), limits(options.limits), inbox(with_names(with_address(a, std::move(options)))) {
    wire::limit_freed_memory();  // libzmq frees messages on another thread
    open();
    inbox.wake_by([this] { wake(); });
    thread = std::thread([this] { run(); });
  }
  Body(const Address& a, plain::FeedOptions options)
      : address(a), inbox({}), feed(std::make_unique<plain::SampleFeed>(std::move(options))) {
    wire::limit_freed_memory();
    open();
    feed->wake_by([this] { wake(); });
    thread = std::thread([this] { run(); });
  }
  ~Body() {
    inbox.wake_by({});
    if (feed) feed->wake_by({});
    leaving = true;
    wake();
    thread.join();
  }

  wire::InboxOptions with_names(wire::InboxOptions options) {
    if (!address.security.names.empty())
      options.may_use = [this](uint64_t peer, const std::string& name) {
        return wire::may_use(address.security.names, address.is_one_way() ? socket->sender_key() : peers.at(peer).key,
                             name);
      };
    return options;
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex);
    socket.reset();
    socket = std::make_unique<Socket>(address, "", limits, 1000);
    connected = false;
    looked_for = wire::now();
  }
  void wake() {
    const std::lock_guard<std::mutex> lock(mutex);
    socket->wake();
  }

  void run() {
    while (!leaving) {
      socket->wait(wire::Inbox::kTick, !is_full(), false);
      if (turn()) std::this_thread::sleep_for(kGather);
    }
    inbox.poll();
    for (const Time latest = wire::now() + kGoodbye; !address.is_one_way() && wire::now() < latest;) {
      turn();
      if (inbox.say_goodbye()) break;
      socket->wait(std::chrono::milliseconds(5), true, false);
    }
    turn();
    socket->linger(kLast);
  }
  // Returns true if messages arrived and none is left.
  bool turn() {
    for (Event event = socket->event(); event.kind != Event::None; event = socket->event()) take(event);
    int received = 0;
    while (received < kMostAtOnce && receive()) ++received;
    const bool alone = !address.binds && !connected && wire::now() - looked_for >= kAlone;
    if (alone && received == 0 && !is_full() && Socket::has_descriptors()) open();  // no message waits in the socket
    flush();
    if (wire::now() - looked > wire::Inbox::kTick) look_for_the_silent();
    return received > 0 && received < kMostAtOnce;
  }

  bool is_full() const { return feed ? feed->is_full() : address.is_one_way() && inbox.is_full(); }
  void turned_away(const std::string& reason) {
    if (feed)
      feed->refused(reason);
    else
      inbox.turned_away(reason);
  }
  void take(const Event& event) {
    if (event.kind == Event::Connected) connected = true;
    if (event.kind == Event::Accepted)
      if (const auto victim = connections.accepted(event.descriptor, wire::now())) socket->hang_up(*victim);
    if (event.kind == Event::Full && is_listening) is_listening = !socket->listen(false), paused = wire::now();
    if (event.kind == Event::Refused) turned_away("a peer was rejected: its key is not in allow=");
    if (event.kind == Event::Foreign)
      turned_away("a peer was rejected: incompatible ZeroMQ protocol or wrong CURVE keys");
    if (event.kind != Event::Disconnected) return;
    connected = false;
    looked_for = wire::now();
    connections.gone(event.descriptor);
    std::vector<uint64_t> left;
    for (const auto& [peer, p] : peers)
      if (p.descriptor == event.descriptor) left.push_back(peer);
    for (const uint64_t peer : left) forget(peer);
  }

  bool receive() {
    if (is_full()) return false;
    Socket::Part part;
    if (!socket->receive(part)) return false;
    uint64_t peer = 1;
    if (address.pattern == Pattern::Router) {
      peer = peer_of(part.bytes);
      if (!part.more || !socket->receive(part)) return true;
    }
    if (address.binds) connections.heard(part.descriptor, wire::now());
    if (const auto at = peers.find(peer); at != peers.end())
      at->second.descriptor = part.descriptor, at->second.key = socket->sender_key();
    size_t parts = 1;
    for (Socket::Part other; part.more && socket->receive(other); part.more = other.more) ++parts;
    if (feed)
      take_samples(part.bytes.bytes, parts);
    else if (parts > 1)
      inbox.damaged(peer, fmt::format("a message of {} parts instead of one frame", parts));
    else
      inbox.arrived(peer, part.bytes);
    return true;
  }

  void take_samples(std::span<const std::byte> message, size_t parts) {
    if (parts > 1) return feed->refused(fmt::format("a message of {} parts instead of one", parts));
    if (message.empty()) return (void)feed->left(1);
    feed->message(1, message);
  }

  struct Peer {
    std::string identity;
    Time heard;
    int descriptor = -1;  // of its connection
    wire::Key key;
  };
  uint64_t peer_of(const wire::OwnedBytes& bytes) {
    const std::string identity(reinterpret_cast<const char*>(bytes.bytes.data()), bytes.size());
    auto known = numbers.find(identity);
    if (known == numbers.end()) {
      if (peers.size() >= kMostPeers) forget(longest_silent());
      known = numbers.emplace(identity, ++last_peer).first;
      peers[last_peer].identity = identity;
    }
    peers[known->second].heard = wire::now();
    return known->second;
  }
  uint64_t longest_silent() const {
    return std::min_element(peers.begin(), peers.end(),
                            [](const auto& a, const auto& b) { return a.second.heard < b.second.heard; })
        ->first;
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
    if (address.pattern == Pattern::Router)
      for (const int descriptor : connections.silent(looked, kFirst, kSilence)) socket->hang_up(descriptor);
    if (!is_listening && looked - paused > kPause) is_listening = socket->listen(true);
  }

  void flush() {
    while (auto answer = inbox.poll()) {
      const auto to = peers.find(answer->peer);
      if (to == peers.end()) continue;
      const std::string& identity = to->second.identity;
      const auto* const first = reinterpret_cast<const std::byte*>(identity.data());
      const auto sent = socket->send(wire::owned({first, first + identity.size()}), true);
      if (sent == Socket::Sent::Yes)
        socket->send(wire::owned(std::move(answer->frame)));
      else if (sent == Socket::Sent::Nobody)
        forget(answer->peer);
      // Full: the sender does not read its answers. It will request the state again.
    }
  }

  Address address;
  wire::Limits limits;
  wire::Inbox inbox;
  std::unique_ptr<plain::SampleFeed> feed;  // of plain formats, instead of the inbox
  std::mutex mutex;                         // of the socket pointer: wake() may run while it is replaced
  std::unique_ptr<Socket> socket;
  Connections connections;
  bool is_listening = true;
  Time paused{};
  bool connected = false;
  Time looked_for{};  // since when it is disconnected
  std::atomic<bool> leaving{false};
  std::map<std::string, uint64_t> numbers;
  std::map<uint64_t, Peer> peers;
  uint64_t last_peer = 0;
  Time looked{};
  std::thread thread;
};

Receiver::Receiver(const Address& address, wire::InboxOptions options)
    : body_(std::make_unique<Body>(address, std::move(options))) {}
Receiver::~Receiver() = default;
Receiver::Receiver(const Address& address, plain::FeedOptions options)
    : body_(std::make_unique<Body>(address, std::move(options))) {}
wire::Inbox& Receiver::inbox() { return body_->feed ? body_->feed->inbox() : body_->inbox; }
bool Receiver::is_plain() const { return body_->feed != nullptr; }
plain::SampleFeed& Receiver::feed() { return *body_->feed; }

uint16_t Receiver::port() const {
  const std::string endpoint = body_->socket->last_endpoint();
  return static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
}

}  // namespace harmonics::zmq
