// ZmqServer: predictions over ZeroMQ, for sockets of kind REQ and DEALER. libzmq is opened when one is asked for;
// nothing is linked to it.
#pragma once

#include <memory>
#include <string>

#include "engine/serving/service.hpp"

namespace harmonics {

// "zmq+rep://127.0.0.1:5556", with "?curve=FILE&allow=FILE" for those who have keys, and "zmq+rep:ipc:/path": is it
// such an address?
bool is_zmq_address(const std::string& text);

class ZmqServer {
 public:
  // Listens when it returns. ErrorKind::Usage for addresses that are none, Denied for those that other machines reach
  // without keys, unless `insecure`; Stream for files without keys; Unavailable when the address or the library cannot
  // be had.
  ZmqServer(Service& service, const std::string& address, bool insecure);
  ~ZmqServer();
  ZmqServer(const ZmqServer&) = delete;
  ZmqServer& operator=(const ZmqServer&) = delete;

  std::string address() const;  // as bound: the port of *:0 is in it
  bool asks_for_token() const;  // even where others do not: other machines reach it and show no keys

 private:
  class Running;
  std::shared_ptr<Running> running_;
};

}  // namespace harmonics
