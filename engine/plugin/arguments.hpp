// From arguments as written to the attributes a function receives: names, types, required ones and defaults checked
// against the schema it registered.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics {

// A value as written in a flow.
struct WrittenValue;
using WrittenList = std::vector<WrittenValue>;
struct WrittenNumber {
  double value = 0;
  bool integral = false;  // without point and exponent
};
struct WrittenWord {
  std::string text;
};
struct WrittenValue {
  std::variant<WrittenNumber, std::string, bool, WrittenList, WrittenWord> value;
  Span span;
};
struct WrittenArgument {
  std::string name;  // "": positional
  Span name_span;
  WrittenValue value;
};

// An argument that names a further source layer.
struct LayerArgument {
  std::string argument, layer;
  Span span;
};
struct BoundArguments {
  AttributeMap values;  // defaults filled in; optional ones that were not given are absent
  std::vector<LayerArgument> layers;
};

// Positional arguments bind in the order of the schema and stand before named ones. Errors carry the place of the
// argument (ErrorKind::Name for names and missing ones, which carry `call`; ErrorKind::Type for values).
BoundArguments bind_arguments(const Item& item, const std::vector<WrittenArgument>& arguments, Span call = {});

// Options of an address, as text by name: "name=value&...". ErrorKind::Usage.
AttributeMap bind_texts(const Item& item, const std::vector<std::pair<std::string, std::string>>& options);

// Attributes that a body gives to a functional of a plugin, with the defaults of what is absent. ErrorKind::Name,
// ErrorKind::Type.
AttributeMap complete_arguments(const Item& item, const AttributeMap& given);

// One value from its text, e.g. a default: "0.01", "true", "3" or "3, 5" or "[3, 5]" for lists. Null: not of this type.
std::optional<AttributeValue> parse_argument(uint32_t type, const std::string& text);

// "relu", "conv(channels, kernel = 3, bias = true)": for people.
std::string signature(const Item& item);
std::string_view argument_type_name(uint32_t type);  // "a whole number"

}  // namespace harmonics
