#include "sender.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "socket.hpp"
#include "wire/inbox.hpp"

namespace harmonics::zmq {

using wire::Time;

namespace {

constexpr Time kGoodbye = std::chrono::milliseconds(200);
constexpr auto kLast = std::chrono::seconds(5);   // time for unacknowledged data to be sent
constexpr Time kAlone = std::chrono::seconds(3);  // libzmq reconnects by itself, except after bytes that are not ZeroMQ
constexpr uint64_t kMostQueued = 64u << 20;       // bytes, in messages of their usual size

wire::OutboxOptions with_address(const Address& address, wire::OutboxOptions options) {
  if (options.where.empty()) options.where = address.str();
  options.one_way = address.is_one_way();
  return options;
}

int most_queued(const wire::OutboxOptions& options) {
  wire::Frame frame;
  frame.tensors = options.tensors;
  const uint64_t usual = std::max<uint64_t>({1, wire::sample_bytes(frame), options.batch_bytes});
  return static_cast<int>(std::clamp<uint64_t>(kMostQueued / usual, 4, 1000));
}

std::string identity_of(const wire::OutboxOptions& options) {
  return (options.stream + "/" + options.producer).substr(0, wire::kMostName);
}

}  // namespace

// The socket is used by its thread only.
struct Sender::Body {
  Body(const Address& a, wire::OutboxOptions options) : address(a), outbox(with_address(a, std::move(options))) {
    open();
    outbox.wake_by([this] { wake(); });
    thread = std::thread([this] { run(); });
  }
  ~Body() {
    outbox.wake_by({});
    leaving = true;
    wake();
    thread.join();
  }

  void open() {
    const std::lock_guard<std::mutex> lock(mutex);
    socket.reset();
    socket =
        std::make_unique<Socket>(address, identity_of(outbox.options()), wire::Limits{}, most_queued(outbox.options()));
    connected = subscribed = false;
    looked_for = wire::now();
  }
  void wake() {
    const std::lock_guard<std::mutex> lock(mutex);
    socket->wake();
  }

  void run() {
    while (!leaving) {
      socket->wait(outbox.until_deadline(), true, static_cast<bool>(pending));
      turn();
    }
    for (const Time latest = wire::now() + kGoodbye; wire::now() < latest && (pending || !outbox.is_quiet());) {
      turn();
      socket->wait(std::chrono::milliseconds(2), true, static_cast<bool>(pending));
    }
    socket->linger(address.is_one_way() ? kLast : std::chrono::milliseconds(100));
  }

  void turn() {
    for (Event event = socket->event(); event.kind != Event::None; event = socket->event()) take(event.kind);
    receive();
    const bool alone = !address.binds && !connected && wire::now() - looked_for >= kAlone;
    if ((alone || outbox.is_out_of_touch()) && Socket::has_descriptors()) {
      outbox.disconnected();
      if (!address.is_one_way()) pending = {};
      open();
    }
    if (address.pattern != Pattern::Pub || subscribed) send();
  }
  void take(Event::Kind event) {
    if (event == Event::Connected) connected = true, outbox.connected();
    if (event == Event::Disconnected) {
      connected = false, looked_for = wire::now();
      outbox.disconnected();
    }
    if (event == Event::Refused) outbox.fail("the receiver does not allow this key");
  }
  void receive() {
    for (Socket::Part part; socket->receive(part);) {
      if (address.pattern == Pattern::Pub)
        subscribed |= part.bytes.size() > 0 && part.bytes.bytes[0] == std::byte{1};
      else
        outbox.receive(part.bytes.bytes);
    }
  }
  void send() {
    while (true) {
      if (!pending) pending = outbox.poll();
      if (!pending || socket->send(pending) != Socket::Sent::Yes) return;
      pending = {};
      if (address.is_one_way()) outbox.sent();
    }
  }

  Address address;
  wire::Outbox outbox;
  std::mutex mutex;  // of the socket pointer: wake() may run while it is replaced
  std::unique_ptr<Socket> socket;
  wire::OwnedBytes pending;  // a message that the socket had no room for
  bool subscribed = false, connected = false;
  Time looked_for{};  // since when it is disconnected
  std::atomic<bool> leaving{false};
  std::thread thread;
};

Sender::Sender(const Address& address, wire::OutboxOptions options)
    : body_(std::make_unique<Body>(address, std::move(options))) {}
Sender::~Sender() = default;
wire::Outbox& Sender::outbox() { return body_->outbox; }

uint16_t Sender::port() const {
  const std::string endpoint = body_->socket->last_endpoint();
  return static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
}

}  // namespace harmonics::zmq
