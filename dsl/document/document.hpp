// YAML as a located tree: scalars stay the texts that are written, and every value and key knows its line and column.
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
  Span span;                   // of a scalar: its text; of a list or a map: where it begins
  std::string text;            // of a scalar, as written, without quotes
  bool quoted = false;         // in quotes or a block: a text whatever it looks like
  std::vector<Node> items;     // of a list
  std::vector<Entry> entries;  // of a map, in the order of the text; keys are unique

  const Node* find(std::string_view key) const;  // null if the map has no such key
};

struct Entry {
  std::string key;
  Span place;  // of the key
  Node value;
};

// Conversions of unquoted scalars. A whole number has digits and a sign, no leading zeros; a real number also a
// fraction and an exponent; a truth is `true` or `false`.
std::optional<int64_t> whole_of(const Node& node);
std::optional<double> real_of(const Node& node);  // of whole numbers too; finite
std::optional<bool> truth_of(const Node& node);
// Returns what a message calls the value: "the text 'no'", "the number 3", "a list", "nothing".
std::string what_is(const Node& node);

struct Document {
  std::shared_ptr<const SourceText> source;
  Node root;
};

// What a text may ask for. Aliases count as what they stand for.
struct Limits {
  size_t bytes = size_t{1} << 20;
  size_t depth = 64;
  size_t nodes = 200'000;
  size_t expanded_bytes = size_t{8} << 20;  // of all scalars
};

// Parses one document. Throws ErrorKind::Syntax with the place (several errors: SourceErrors) for what is no YAML or
// beyond the limits, and for duplicate keys, tags, merge keys, and keys that are no scalars.
Document parse_document(std::shared_ptr<const SourceText> source, const Limits& limits = {});
// Reads and parses a file; ErrorKind::NoInput if it cannot be read.
Document read_document(const std::string& path, const Limits& limits = {});

}  // namespace harmonics::engine::document
