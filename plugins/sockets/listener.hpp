// The receiver's end of a socket: listens, and fills an inbox. Asio is in the source.
#pragma once

#include <memory>

#include "endpoint.hpp"
#include "wire/inbox.hpp"
#include "wire/plain/sample_feed.hpp"

namespace harmonics::sockets {

class Listener {
 public:
  // Errors: Stream when the place cannot be listened on.
  explicit Listener(const Endpoint& endpoint, wire::InboxOptions options = {});
  // Of samples in a plain format, which its feed takes: nobody is answered.
  Listener(const Endpoint& endpoint, plain::FeedOptions options);
  // Senders that have ended are told before, those that have not are told that nobody reads any more.
  ~Listener();

  wire::Inbox& inbox();
  bool is_plain() const;
  plain::SampleFeed& feed();
  // The one it was given, or for port 0 the one it was lent.
  uint16_t port() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::sockets
