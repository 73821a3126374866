// Peers without our code: they send given bytes or messages and read the answers.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/transports/checks.hpp"
#include "tests/wire/raw_frame.hpp"
#include "wire/frame_reader.hpp"

#ifdef HARMONICS_WITH_ZMQ
#include <zmq.h>
#endif

namespace transports {

using wire::testing::Bytes;

class Peer {
 public:
  virtual ~Peer() = default;
  // Returns false when the other end no longer reads.
  virtual bool say(std::span<const std::byte> bytes) = 0;
  // Returns the next answer within a minute; none: no answer, or the connection has ended.
  virtual std::optional<wire::Frame> answer() = 0;
  bool say(const std::string& text) { return say(std::as_bytes(std::span(text))); }
  bool say(const wire::Frame& frame) { return say(wire::encode(frame).bytes()); }
};

class RawPeer final : public Peer {
 public:
  explicit RawPeer(const std::string& kind, const std::string& address) {
    socket_ = socket(kind == "unix" ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    const timeval wait{60, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    connected_ = connect_to(socket_, kind, address);
  }
  static bool connect_to(int socket, const std::string& kind, const std::string& address) {
    if (kind == "unix") {
      sockaddr_un place{};
      place.sun_family = AF_UNIX;
      std::strncpy(place.sun_path, address.c_str(), sizeof place.sun_path - 1);
      return connect(socket, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0;
    }
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect(socket, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0;
  }
  ~RawPeer() override { ::close(socket_); }
  using Peer::say;
  bool is_connected() const { return connected_; }
  bool say(std::span<const std::byte> bytes) override {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  std::optional<wire::Frame> answer() override {
    while (true) {
      if (const wire::OwnedBytes frame = reader_.next()) return wire::decode(frame.bytes);
      const auto room = reader_.room();
      const ssize_t n = recv(socket_, room.data(), room.size(), 0);
      if (n <= 0) return std::nullopt;
      reader_.arrived(static_cast<size_t>(n));
    }
  }
  // Returns whether the other end closes within this time; 0: whether it has closed by now.
  bool is_closed_within(int seconds) {
    const timeval wait{seconds, seconds == 0 ? 1 : 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    char bytes[4096];
    ssize_t n = 0;
    while ((n = recv(socket_, bytes, sizeof bytes, 0)) > 0) {
    }
    return n == 0 || errno == ECONNRESET;
  }

 private:
  int socket_ = -1;
  bool connected_ = false;
  wire::FrameReader reader_;
};

#ifdef HARMONICS_WITH_ZMQ
class ZmqRawPeer final : public Peer {
 public:
  ZmqRawPeer(const std::string& kind, const std::string& address) : context_(zmq_ctx_new()) {
    socket_ = zmq_socket(context_, kind == "zmq+router" ? ZMQ_DEALER : kind == "zmq+pull" ? ZMQ_PUSH : ZMQ_XPUB);
    const int none = 0, wait = 60000;
    zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &wait, sizeof wait);
    zmq_setsockopt(socket_, ZMQ_SNDTIMEO, &wait, sizeof wait);
    if (zmq_connect(socket_, ("tcp://" + address).c_str()) != 0)
      throw std::runtime_error("no connection to " + address);
    char subscription[16];
    if (kind == "zmq+sub" && zmq_recv(socket_, subscription, sizeof subscription, 0) != 1)
      throw std::runtime_error("nobody subscribes");
  }
  ~ZmqRawPeer() override { zmq_close(socket_), zmq_ctx_term(context_); }
  using Peer::say;
  bool say(std::span<const std::byte> bytes) override { return zmq_send(socket_, bytes.data(), bytes.size(), 0) >= 0; }
  std::optional<wire::Frame> answer() override {
    std::vector<std::byte> bytes(1u << 16);
    const int size = zmq_recv(socket_, bytes.data(), bytes.size(), 0);
    if (size < 0) return std::nullopt;
    return wire::decode(std::span(bytes).first(static_cast<size_t>(size)));
  }

 private:
  void *context_, *socket_;
};
#endif

inline std::unique_ptr<Peer> raw_peer(const std::string& kind, const std::string& address) {
#ifdef HARMONICS_WITH_ZMQ
  if (kind.compare(0, 3, "zmq") == 0) return std::make_unique<ZmqRawPeer>(kind, address);
#endif
  return std::make_unique<RawPeer>(kind, address);
}

inline bool answers(const std::string& kind) { return kind != "zmq+pull" && kind != "zmq+sub"; }

// A sender that sends continuously, and its reader: expects every sample with a number below a million, in order, and
// skips samples of other senders.
class HealthySender {
 public:
  HealthySender(const std::string& kind, Receiving& receiving)
      : inbox_(receiving.inbox()),
        labels_(inbox_.open("label", kPatience)),
        sender_([this, kind, address = receiving.address] {
          const auto sending = send(kind, address, pictures("good"));
          for (int64_t i = 0; !over_; ++i)
            push_picture(sending->outbox(), i), pushed_ = i + 1,
                                                std::this_thread::sleep_for(std::chrono::milliseconds(1));
          sending->outbox().finish();
          counts_ = sending->outbox().counts();
        }),
        reader_([this] {
          for (int64_t wanted = 0;;) {
            const auto sample = inbox_.next(labels_);
            if (!sample && over_) return;
            if (!sample) {
              std::this_thread::sleep_for(std::chrono::milliseconds(2));
              continue;
            }
            int64_t n = 0;
            std::memcpy(&n, sample->bytes.bytes.data(), sizeof n);
            if (n >= 1000000) continue;
            if (n != wanted)
              throw std::runtime_error("sample " + std::to_string(n) + " came, wanted was " + std::to_string(wanted));
            read_ = ++wanted;
          }
        }) {}
  // Returns whether further samples arrive within this time.
  bool goes_on(std::chrono::seconds within = kPatience) {
    const int64_t before = read_;
    const wire::Time latest = wire::now() + within;
    while (read_ < before + 20 && wire::now() < latest) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return read_ >= before + 20;
  }
  // Returns "" if every sample has arrived and the sender needed a single session.
  std::string end() {
    over_ = true;
    std::string error = sender_.end();
    for (const wire::Time latest = wire::now() + kPatience; read_ != pushed_ && wire::now() < latest;)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    inbox_.cancel(labels_);
    if (error.empty()) error = reader_.end();
    if (error.empty() && read_ != pushed_)
      error = std::to_string(pushed_) + " were sent, " + std::to_string(read_) + " came";
    if (error.empty() && counts_.sessions > 1) error = std::to_string(counts_.sessions) + " sessions";
    return error;
  }

 private:
  wire::Inbox& inbox_;
  int labels_;
  std::atomic<bool> over_{false};
  std::atomic<int64_t> pushed_{0}, read_{0};
  wire::Outbox::Counts counts_;
  Worker sender_, reader_;
};

}  // namespace transports
