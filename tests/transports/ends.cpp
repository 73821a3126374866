#include "tests/transports/ends.hpp"

#include <unistd.h>

#include <cstring>

#include "plugins/sockets/listener.hpp"
#include "plugins/sockets/sender.hpp"
#ifdef HARMONICS_WITH_ZMQ
#include "plugins/zmq/receiver.hpp"
#include "plugins/zmq/sender.hpp"
#endif

namespace transports {
namespace {

class SocketReceiving final : public Receiving {
 public:
  SocketReceiving(const sockets::Endpoint& endpoint, wire::InboxOptions options)
      : listener_(endpoint, std::move(options)) {
    address = endpoint.is_unix() ? endpoint.path : "127.0.0.1:" + std::to_string(listener_.port());
  }
  wire::Inbox& inbox() override { return listener_.inbox(); }

 private:
  sockets::Listener listener_;
};
class SocketSending final : public Sending {
 public:
  SocketSending(const sockets::Endpoint& endpoint, wire::OutboxOptions options)
      : sender_(endpoint, std::move(options)) {}
  wire::Outbox& outbox() override { return sender_.outbox(); }

 private:
  sockets::Sender sender_;
};

#ifdef HARMONICS_WITH_ZMQ
class ZmqReceiving final : public Receiving {
 public:
  ZmqReceiving(const zmq::Address& where, wire::InboxOptions options) : receiver_(where, std::move(options)) {
    address = "127.0.0.1:" + std::to_string(receiver_.port());
  }
  wire::Inbox& inbox() override { return receiver_.inbox(); }

 private:
  zmq::Receiver receiver_;
};
class ZmqSending final : public Sending {
 public:
  ZmqSending(const zmq::Address& where, wire::OutboxOptions options) : sender_(where, std::move(options)) {}
  wire::Outbox& outbox() override { return sender_.outbox(); }

 private:
  zmq::Sender sender_;
};
// Returns the address. The receiver's socket binds, the sender's connects.
zmq::Address zmq_address(const std::string& kind, const std::string& address, bool receives) {
  const zmq::Pattern pattern = kind == "zmq+router" ? (receives ? zmq::Pattern::Router : zmq::Pattern::Dealer)
                               : kind == "zmq+pull" ? (receives ? zmq::Pattern::Pull : zmq::Pattern::Push)
                                                    : (receives ? zmq::Pattern::Sub : zmq::Pattern::Pub);
  zmq::Address where = zmq::parse_address(pattern, address.empty() ? "127.0.0.1:0" : address);
  where.binds = receives;
  return where;
}
#endif

std::string fresh_path() {
  static std::atomic<int> next{0};
  return "/tmp/harmonics_transports_" + std::to_string(getpid()) + "_" + std::to_string(next++);
}

}  // namespace

std::vector<std::string> lossless() {
#ifdef HARMONICS_WITH_ZMQ
  return {"tcp", "unix", "zmq+router"};
#else
  return {"tcp", "unix"};
#endif
}
std::vector<std::string> at_most_once() {
#ifdef HARMONICS_WITH_ZMQ
  return {"zmq+pull", "zmq+sub"};
#else
  return {};
#endif
}

std::unique_ptr<Receiving> receive(const std::string& kind, const std::string& address, wire::InboxOptions options) {
  if (kind == "tcp")
    return std::make_unique<SocketReceiving>(sockets::tcp_endpoint(address.empty() ? "127.0.0.1:0" : address),
                                             std::move(options));
  if (kind == "unix")
    return std::make_unique<SocketReceiving>(sockets::unix_endpoint(address.empty() ? fresh_path() : address),
                                             std::move(options));
#ifdef HARMONICS_WITH_ZMQ
  return std::make_unique<ZmqReceiving>(zmq_address(kind, address, true), std::move(options));
#else
  throw Error(ErrorKind::Usage, "there is no transport '" + kind + "'");
#endif
}

std::unique_ptr<Sending> send(const std::string& kind, const std::string& address, wire::OutboxOptions options) {
  if (kind == "tcp") return std::make_unique<SocketSending>(sockets::tcp_endpoint(address), std::move(options));
  if (kind == "unix") return std::make_unique<SocketSending>(sockets::unix_endpoint(address), std::move(options));
#ifdef HARMONICS_WITH_ZMQ
  return std::make_unique<ZmqSending>(zmq_address(kind, address, false), std::move(options));
#else
  throw Error(ErrorKind::Usage, "there is no transport '" + kind + "'");
#endif
}

wire::OutboxOptions pictures(const std::string& name) {
  wire::OutboxOptions options;
  options.producer = name;
  options.tensors = {{"image", DType::U8, {kSide, kSide}, {}}, {"label", DType::I64, {}, {}}};
  options.patience = kPatience;
  return options;
}

void push_picture(wire::Outbox& outbox, int64_t number) {
  std::byte image[kSide * kSide] = {};
  std::memcpy(image, &number, sizeof number);
  const std::span<const std::byte> pieces[] = {image, std::as_bytes(std::span(&number, 1))};
  outbox.push(pieces);
}

void push_pictures(wire::Outbox& outbox, int64_t first, int64_t count) {
  for (int64_t i = first; i < first + count; ++i) push_picture(outbox, i);
}

std::unique_ptr<Worker> sending(const std::string& kind, const std::string& address, const std::string& name,
                                int64_t first, int64_t count) {
  return std::make_unique<Worker>([=] {
    const auto sender = send(kind, address, pictures(name));
    push_pictures(sender->outbox(), first, count);
    sender->outbox().finish();
  });
}

}  // namespace transports
