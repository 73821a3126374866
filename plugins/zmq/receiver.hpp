// The receiving end over ZeroMQ: ROUTER exchanges messages with its senders, PULL and SUB only receive.
#pragma once

#include <memory>

#include "address.hpp"
#include "wire/inbox.hpp"
#include "wire/plain/sample_feed.hpp"

namespace harmonics::zmq {

class Receiver {
 public:
  // Throws ErrorKind::Stream if the address cannot be bound. From then on, the process's heap retains more freed memory
  // (docs/decisions/022).
  explicit Receiver(const Address& address, wire::InboxOptions options = {});
  // For samples in a plain format, one per message, decoded by a feed: PULL and SUB. An empty message ends the stream.
  Receiver(const Address& address, plain::FeedOptions options);
  ~Receiver();

  wire::Inbox& inbox();
  bool is_plain() const;
  plain::SampleFeed& feed();
  // Returns the given port, or the one that the system chose for port 0.
  uint16_t port() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::zmq
