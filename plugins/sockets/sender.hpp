// The sending end of a socket: connects, reconnects, and drains an outbox. Asio is confined to the source file.
#pragma once

#include <memory>

#include "endpoint.hpp"
#include "wire/outbox.hpp"

namespace harmonics::sockets {

class Sender {
 public:
  Sender(const Endpoint& endpoint, wire::OutboxOptions options);
  ~Sender();

  wire::Outbox& outbox();

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::sockets
