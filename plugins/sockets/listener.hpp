// The receiving end of a socket: listens and fills an inbox. Asio is confined to the source file.
#pragma once

#include <memory>

#include "endpoint.hpp"
#include "wire/inbox.hpp"
#include "wire/plain/sample_feed.hpp"

namespace harmonics::sockets {

class Listener {
 public:
  // Throws ErrorKind::Stream if the endpoint cannot be bound.
  explicit Listener(const Endpoint& endpoint, wire::InboxOptions options = {});
  // For samples in a plain format, decoded by a feed. Senders get no answer.
  Listener(const Endpoint& endpoint, plain::FeedOptions options);
  // First confirms to senders that have ended, and tells the others that there is no reader.
  ~Listener();

  wire::Inbox& inbox();
  bool is_plain() const;
  plain::SampleFeed& feed();
  // Returns the given port, or the one that the system chose for port 0.
  uint16_t port() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::sockets
