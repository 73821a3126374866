// Where a ZeroMQ socket binds or connects to, by which pattern, and who may know what is sent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "wire/keys.hpp"

namespace harmonics::zmq {

using wire::Key;
using wire::KeyPair;
using wire::read_allowed;
using wire::read_key_pair;
using wire::read_public_key;

enum class Pattern { Router, Dealer, Pull, Push, Sub, Pub };
const char* scheme_of(Pattern pattern);  // "zmq+router"

// Between those who have keys; none: anybody who reaches the socket.
struct Security {
  std::optional<KeyPair> own;
  std::vector<Key> allowed;     // who may send here
  std::optional<Key> server;    // who listens there
  wire::BoundNames names = {};  // senders' names that belong to keys
};

struct Address {
  Pattern pattern = Pattern::Router;
  std::string host;
  uint16_t port = 0;
  bool binds = true;
  Security security;

  std::string str() const;       // "zmq+router://127.0.0.1:5555"
  std::string endpoint() const;  // "tcp://127.0.0.1:5555"
  bool is_one_way() const { return pattern != Pattern::Router && pattern != Pattern::Dealer; }
};

// HOST:PORT, with // before it or without. Errors: Usage.
Address parse_address(Pattern pattern, const std::string& text);
// Beyond this machine only with keys, or when `insecure`. Errors: Denied.
void check_security(const Address& address, bool insecure);

}  // namespace harmonics::zmq
