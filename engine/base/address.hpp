// Addresses of streams: SCHEME:PATH?key=value&key=value#fragment, percent-encoded where a character would end its part.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/error.hpp>

namespace harmonics {

struct AddressOption {
  std::string key, value;
};

struct Address {
  std::string scheme, path;            // "file" for a bare path
  std::vector<AddressOption> options;  // in the order written; no key twice
  std::optional<std::string> fragment;

  // The value of an option; null: not given.
  const std::string* find(std::string_view key) const;
  // Removes an option and gives its value.
  std::optional<std::string> take(std::string_view key);
  // Written again; parsing that gives this address.
  std::string str() const;
};

// Throws ErrorKind::Usage with the address, the place and what to write.
Address parse_address(std::string_view text);

// NAME=ADDRESS or ADDRESS, as --producer and --consumer take them. An empty name: none was given.
struct Binding {
  std::string name;
  Address address;
};
Binding parse_binding(std::string_view text);

}  // namespace harmonics
