// The receiver's end over ZeroMQ: ROUTER converses with its senders, PULL and SUB take what comes.
#pragma once

#include <memory>

#include "address.hpp"
#include "wire/inbox.hpp"
#include "wire/plain/sample_feed.hpp"

namespace harmonics::zmq {

class Receiver {
 public:
  // Errors: Stream when the address cannot be bound. The heap of the process keeps more of what is freed from then on
  // (docs/decisions/022).
  explicit Receiver(const Address& address, wire::InboxOptions options = {});
  // Of samples in a plain format, a message at a time, which its feed takes: PULL and SUB. An empty message ends the
  // stream.
  Receiver(const Address& address, plain::FeedOptions options);
  ~Receiver();

  wire::Inbox& inbox();
  bool is_plain() const;
  plain::SampleFeed& feed();
  // The port it was given, or for port 0 the one it was lent.
  uint16_t port() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::zmq
