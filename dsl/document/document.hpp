// YAML as a tree with positions: scalars keep the text as written, and each value and key has its line and column.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/source_text.hpp"

namespace harmonics::engine::document {

enum class Kind { null, scalar, list, map };

struct Entry;

struct Node {
  Kind kind = Kind::null;
  Span span;                   // scalar: its text; list or map: its start
  std::string text;            // scalar: as written, without quotes
  bool quoted = false;         // in quotes or a block: always a text
  std::vector<Node> items;     // of a list
  std::vector<Entry> entries;  // of a map, in the order of the text; keys are unique

  const Node* find(std::string_view key) const;  // null if the map has no such key
};

struct Entry {
  std::string key;
  Span place;  // of the key
  Node value;
};

// Convert unquoted scalars. An integer has digits and a sign, without leading zeros; a real number also has a fraction
// and an exponent; a boolean is `true` or `false`.
std::optional<int64_t> whole_of(const Node& node);
std::optional<double> real_of(const Node& node);  // accepts integers; the result is finite
std::optional<bool> truth_of(const Node& node);
// Describes the value for messages: "the text 'no'", "the number 3", "a list", "nothing".
std::string what_is(const Node& node);

struct Document {
  std::shared_ptr<const SourceText> source;
  Node root;
};

// Limits of a text. An alias counts as the value that it refers to.
struct Limits {
  size_t bytes = size_t{1} << 20;
  size_t depth = 64;
  size_t nodes = 200'000;
  size_t expanded_bytes = size_t{8} << 20;  // of all scalars
};

// Parses one document. Throws ErrorKind::Syntax with the position (several errors: SourceErrors) for malformed YAML,
// for exceeded limits, and for duplicate keys, tags, merge keys and keys that are not scalars.
Document parse_document(std::shared_ptr<const SourceText> source, const Limits& limits = {});
// Reads and parses a file. Throws ErrorKind::NoInput if it cannot be read.
Document read_document(const std::string& path, const Limits& limits = {});

}  // namespace harmonics::engine::document
