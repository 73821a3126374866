// The address, pattern and encryption of a ZeroMQ socket.
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

// Keys that encrypt and authenticate connections. Without keys, every peer that reaches the socket is accepted.
struct Security {
  std::optional<KeyPair> own;
  std::vector<Key> allowed;     // peers that may connect
  std::optional<Key> server;    // the key of the receiver
  wire::BoundNames names = {};  // sender names bound to keys
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

// Parses HOST:PORT, with or without //. Errors: Usage.
Address parse_address(Pattern pattern, const std::string& text);
// Requires keys or `insecure` for other machines. Errors: Denied.
void check_security(const Address& address, bool insecure);

}  // namespace harmonics::zmq
