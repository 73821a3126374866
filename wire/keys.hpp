// Keys of CURVE, as files have them, and who may come in. Nothing of libzmq is needed for it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics::wire {

// 40 characters that stand for 32 bytes.
using Key = std::string;
struct KeyPair {
  Key public_key, secret_key;
};

// A file with the lines "public = KEY" and "secret = KEY", which nobody else may read. Errors: Stream, Denied.
KeyPair read_key_pair(const std::string& path);
// The key itself, or a file with the line "public = KEY".
Key read_public_key(const std::string& text);
// A file of public keys, a line each: KEY, or "public = KEY"; # begins a comment. "KEY as NAME" binds a sender's name
// to the key.
std::vector<Key> read_allowed(const std::string& path);
// The names that are bound there, each with the keys that may use it.
using BoundNames = std::multimap<std::string, Key>;
BoundNames read_bound_names(const std::string& path);
// A name that is bound is used by its keys alone, and a key to which names are bound uses no others.
bool may_use(const BoundNames& bound, const Key& key, const std::string& name);

// The text of 32 bytes (ZeroMQ RFC 32).
Key key_of(std::span<const unsigned char, 32> bytes);
// What libzmq is told when it asks by RFC 27 whether somebody may come in: only who has one of these keys.
std::vector<std::string> admission(const std::vector<std::string>& question, const std::vector<Key>& allowed);

}  // namespace harmonics::wire
