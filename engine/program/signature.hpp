// Signatures of functionals: named inputs, results and attributes, read from one line of text.
//
//   x [..., in], weight [out, in], bias [out]? {activation = "" in relu|tanh, scale: float?} -> y [..., out]
//
// An input or result is a name, then its type and shape as free text. A suffix `?` marks it as optional, `...` as
// repeated. `labels [...] < classes` contains indices below the size of the axis of that name in an earlier input, or
// below the attribute of that name. `...` alone: any number of further inputs, or attributes that are checked
// elsewhere.
//
// An attribute is NAME [: TYPE] [?] [= DEFAULT] [in RANGE] [since 1.N] [(description)]. Types are int, float, bool,
// text and ints; a default implies the type. `?` marks an optional attribute; one with neither `?` nor a default is
// required. Ranges are those of plugin arguments (hx_argument_spec); a default may be outside its range. Libraries
// built for a contract before `since` are not offered calls in which the attribute differs from its default.
//
// Text after ";" is a note about the call as a whole.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

struct OperandSpec {
  std::string name;
  std::string type;  // "i32 [T] or [B, T]"
  bool optional = false, repeated = false;
  std::string below;  // axis or attribute that limits its indices; "": not indices

  std::string str() const;
  // Returns the axes of its first shape, such as "...", "rows", "2"; nothing if the text contains no shape.
  std::optional<std::vector<std::string>> axes() const;
};

struct AttributeSpec : ArgumentSpec {
  uint16_t since = 0;  // minor version of contract 1

  std::optional<AttributeValue> value_if_absent() const;
};

struct Signature {
  bool known = false;  // false: inputs and results are unspecified
  std::vector<OperandSpec> inputs, results;
  bool more_inputs = false, more_attributes = false;
  std::vector<AttributeSpec> attributes;
  std::string notes;

  const AttributeSpec* attribute(std::string_view name) const;  // null: none
  size_t fewest_inputs() const;
  size_t most_inputs() const;  // SIZE_MAX: any number
  // Returns the text without ranges and descriptions: "x [..., in], weight [out, in] {scale?} -> y [..., out]".
  std::string str() const;
};

// Parses a signature. "" gives an unknown one, which allows any inputs and attributes. Throws ErrorKind::Plugin for
// invalid text.
Signature parse_signature(const std::string& text);

// Checks of a call; `op` is the name used in messages.
//
// Throws ErrorKind::Shape for an invalid number of inputs.
void check_inputs(std::string_view op, const Signature& signature, size_t inputs);
// Throws ErrorKind::Name for unknown and missing attributes, and ErrorKind::Type for values of another type or out of
// range.
void check_attributes(std::string_view op, const Signature& signature, const AttributeMap& attributes);
// Returns the error "rope has no attribute 'ofset'", with the nearest name as a note.
Error unknown_attribute(std::string_view op, const Signature& signature, std::string_view name);

// Returns the exclusive upper bound of the indices in an input, or nothing if the input does not contain indices.
std::optional<int64_t> index_limit(const Signature& signature, size_t input, const AttributeMap& attributes,
                                   std::span<const TensorType> inputs);
// Returns whether indices in another input select rows of this one.
bool is_looked_up(const Signature& signature, size_t input);
// Returns whether all attributes have the values that apply if they are absent.
bool has_defaults(const Signature& signature, const AttributeMap& attributes);
// Returns the lowest minor version of contract 1 that supports all attributes of the call.
uint16_t contract_minor(const Signature& signature, const AttributeMap& attributes);

}  // namespace harmonics::engine
