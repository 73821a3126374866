// ZmqServer: predictions over ZeroMQ, for REQ and DEALER sockets. libzmq is loaded on first use, not linked.
#pragma once

#include <memory>
#include <string>

#include "engine/serving/service.hpp"

namespace harmonics::engine {

// Returns whether the text is an address such as "zmq+rep://127.0.0.1:5556", optionally with "?curve=FILE&allow=FILE"
// for keys, or "zmq+rep:ipc:/path".
bool is_zmq_address(const std::string& text);

class ZmqServer {
 public:
  // Listens when the constructor returns. Throws ErrorKind::Usage for an invalid address, Denied for an address that
  // other machines can reach without keys (unless `insecure`), Stream for files without keys, and Unavailable if the
  // address cannot be bound or the library is missing.
  ZmqServer(Service& service, const std::string& address, bool insecure);
  ~ZmqServer();
  ZmqServer(const ZmqServer&) = delete;
  ZmqServer& operator=(const ZmqServer&) = delete;

  std::string address() const;  // as bound, with the actual port for *:0
  bool asks_for_token() const;  // true if other machines can reach it without keys, even if other servers need no token

 private:
  class Running;
  std::shared_ptr<Running> running_;
};

}  // namespace harmonics::engine
