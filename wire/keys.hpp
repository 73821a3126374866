// CURVE keys as stored in files, and access control. Does not need libzmq.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::wire {

// 40 characters that encode 32 bytes.
using Key = std::string;
struct KeyPair {
  Key public_key, secret_key;
};

// Reads a file with the lines "public = KEY" and "secret = KEY", which other users must not be able to read. Errors:
// Stream, Denied.
KeyPair read_key_pair(const std::string& path);
// Accepts the key itself, or a file with the line "public = KEY".
Key read_public_key(const std::string& text);
// Reads a file of public keys, one per line: KEY, or "public = KEY"; # begins a comment. "KEY as NAME" binds a sender
// name to the key.
std::vector<Key> read_allowed(const std::string& path);
// The bound names, each with the keys that may use it.
using BoundNames = std::multimap<std::string, Key>;
BoundNames read_bound_names(const std::string& path);
// Returns whether the key may use the name: a bound name only its keys, and a key with bound names only these.
bool may_use(const BoundNames& bound, const Key& key, const std::string& name);

// Returns the text of 32 bytes (ZeroMQ RFC 32).
Key key_of(std::span<const unsigned char, 32> bytes);
// Returns the answer to libzmq's access request (RFC 27): accepts only peers with one of these keys.
std::vector<std::string> admission(const std::vector<std::string>& question, const std::vector<Key>& allowed);

}  // namespace harmonics::wire
