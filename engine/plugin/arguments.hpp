// Binds written arguments to the attributes that a function receives. Checks names, types and required arguments
// against the registered schema, and adds defaults.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

// A value as written in a flow.
struct WrittenValue;
using WrittenList = std::vector<WrittenValue>;
struct WrittenNumber {
  double value = 0;
  bool integral = false;  // without decimal point and exponent
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
  AttributeMap values;  // with defaults; optional arguments that were not given are absent
  std::vector<LayerArgument> layers;
};

// Binds arguments to the item's schema. Positional arguments bind in the order of the schema and precede named ones.
// Throws ErrorKind::Name for unknown and missing names, and ErrorKind::Type for values, at the position of the argument
// (of `call` for missing ones).
BoundArguments bind_arguments(const Item& item, const std::vector<WrittenArgument>& arguments, Span call = {});

// Splits the text of arguments outside a flow, such as `5, at=[1, 2], word="a, b"`, into names ("": positional) and
// values without quotes. Throws ErrorKind::Usage for text that does not end or goes on after its quote.
std::vector<std::pair<std::string, std::string>> split_arguments(const std::string& text);
// Returns the position of the first comma outside quotes, brackets and parentheses from `at`, or the end of the text.
size_t end_of_argument(std::string_view text, size_t at);

// Binds options of an address, as text by name: "name=value&...". Throws ErrorKind::Usage.
AttributeMap bind_texts(const Item& item, const std::vector<std::pair<std::string, std::string>>& options);

// Adds defaults to the attributes that a body passes to a plugin's functional. Throws ErrorKind::Name for missing ones.
AttributeMap complete_arguments(const Item& item, const AttributeMap& given);

// Parses one value, e.g. a default: "0.01", "true", "3", and "3, 5" or "[3, 5]" for lists. Returns null for text of
// another type.
std::optional<AttributeValue> parse_argument(uint32_t type, const std::string& text);

// Returns whether an attribute of this type (hx_argument_type) may have the value. Whole numbers are numbers too.
bool is_argument_value(uint32_t type, const AttributeValue& value);

// Returns the signature in readable form: "relu", "conv(channels, kernel = 3, bias = true)".
std::string signature(const Item& item);
std::string_view argument_type_name(uint32_t type);  // "a whole number"

}  // namespace harmonics::engine
