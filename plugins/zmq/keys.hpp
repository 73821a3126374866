// Keys of CURVE, as files have them.
#pragma once

#include <string>
#include <vector>

namespace harmonics::zmq {

// 40 characters that stand for 32 bytes.
using Key = std::string;
struct KeyPair {
  Key public_key, secret_key;
};

// A file with the lines "public = KEY" and "secret = KEY", which nobody else may read. Errors: Stream, Denied.
KeyPair read_key_pair(const std::string& path);
// The key itself, or a file with the line "public = KEY".
Key read_public_key(const std::string& text);
// A file of public keys, a line each: KEY, or "public = KEY"; # begins a comment.
std::vector<Key> read_allowed(const std::string& path);

}  // namespace harmonics::zmq
