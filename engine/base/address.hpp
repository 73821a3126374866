// Addresses of streams: SCHEME:PATH?key=value&key=value#fragment. Characters that would end a part are
// percent-encoded.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/error.hpp>

namespace harmonics::engine {

struct AddressOption {
  std::string key, value;
};

struct Address {
  std::string scheme, path;            // "file" for a bare path
  std::vector<AddressOption> options;  // in the order written; unique keys
  std::optional<std::string> fragment;

  // Returns the value of an option, or null.
  const std::string* find(std::string_view key) const;
  // Removes an option and returns its value.
  std::optional<std::string> take(std::string_view key);
  // Formats the address. Parsing the result gives the same address.
  std::string str() const;
};

// Parses an address. Throws ErrorKind::Usage with the address, the reason and a remedy.
Address parse_address(std::string_view text);

// The value of --producer and --consumer: NAME=ADDRESS, or ADDRESS with an empty name.
struct Binding {
  std::string name;
  Address address;
};
Binding parse_binding(std::string_view text);

}  // namespace harmonics::engine
