// The sending end over ZeroMQ: DEALER keeps unacknowledged frames, PUSH and PUB send and forget.
#pragma once

#include <memory>

#include "address.hpp"
#include "wire/outbox.hpp"

namespace harmonics::zmq {

class Sender {
 public:
  // Throws ErrorKind::Stream if the address cannot be bound.
  Sender(const Address& address, wire::OutboxOptions options);
  ~Sender();

  wire::Outbox& outbox();
  // Returns the bound port.
  uint16_t port() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::zmq
