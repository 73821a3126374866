// The receiving end of a socket: listens and fills an inbox. Only the source includes Asio.
#pragma once

#include <memory>

#include "endpoint.hpp"
#include "wire/inbox.hpp"
#include "wire/plain/sample_feed.hpp"

namespace harmonics::sockets {

class Listener {
 public:
  // Errors: Stream when the endpoint cannot be bound.
  explicit Listener(const Endpoint& endpoint, wire::InboxOptions options = {});
  // For samples in a plain format, which its feed takes: senders get no answer.
  Listener(const Endpoint& endpoint, plain::FeedOptions options);
  // First confirms to senders that have ended, and tells the others that nothing reads any more.
  ~Listener();

  wire::Inbox& inbox();
  bool is_plain() const;
  plain::SampleFeed& feed();
  // The given port, or for port 0 the one that the system chose.
  uint16_t port() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::sockets
