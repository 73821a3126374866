#include "engine/program/signature.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/core.h>

#include "engine/plugin/arguments.hpp"
#include "engine/plugin/range.hpp"

namespace harmonics::engine {

namespace {

[[noreturn]] void refuse_signature(const std::string& what) { throw Error(ErrorKind::Plugin, "the signature " + what); }

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string_view::npos ? "" : std::string(text.substr(first, text.find_last_not_of(' ') - first + 1));
}

// Searches a text outside brackets and quotes.
class Plain {
 public:
  explicit Plain(std::string_view text) : text_(text) {}

  // Returns the position of `wanted` at or after `from`, outside brackets and quotes that open after `from`, or npos.
  // Throws if brackets or quotes are not balanced.
  size_t find(std::string_view wanted, size_t from = 0) const {
    int depth = 0;
    bool quoted = false;
    for (size_t i = from; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '"') quoted = !quoted;
      if (quoted) continue;
      if (depth == 0 && text_.compare(i, wanted.size(), wanted) == 0) return i;
      if (c == '[' || c == '(' || c == '{') ++depth;
      if (c == ']' || c == ')' || c == '}') --depth;
      if (depth < 0) refuse_signature("closes a bracket that is not open: " + std::string(text_));
    }
    if (depth > 0 || quoted) refuse_signature("does not close a bracket or quote: " + std::string(text_));
    return std::string_view::npos;
  }
  std::vector<std::string> split() const {
    std::vector<std::string> parts;
    for (size_t at = 0; at <= text_.size();) {
      const size_t end = std::min(find(",", at), text_.size());
      if (std::string part = trimmed(text_.substr(at, end - at)); !part.empty()) parts.push_back(std::move(part));
      at = end + 1;
    }
    return parts;
  }

 private:
  std::string_view text_;
};

size_t name_length(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && (std::isalnum(static_cast<unsigned char>(text[n])) || text[n] == '_')) ++n;
  return n;
}

bool take_end(std::string& text, std::string_view end) {
  if (text.size() < end.size() || text.compare(text.size() - end.size(), end.size(), end) != 0) return false;
  text = trimmed(std::string_view(text).substr(0, text.size() - end.size()));
  return true;
}
bool take_start(std::string& text, std::string_view start) {
  if (text.compare(0, start.size(), start) != 0) return false;
  text = trimmed(std::string_view(text).substr(start.size()));
  return true;
}

OperandSpec read_operand(std::string text) {
  OperandSpec operand;
  const std::string whole = text;
  operand.optional = take_end(text, "?");
  operand.repeated = take_end(text, "...");
  const size_t below = Plain(text).find(" < ");
  if (below != std::string::npos) {
    operand.below = trimmed(std::string_view(text).substr(below + 3));
    text = trimmed(std::string_view(text).substr(0, below));
  }
  const size_t n = name_length(text);
  if (n == 0 || (below != std::string::npos && name_length(operand.below) != operand.below.size()))
    refuse_signature("has an operand '" + whole + "'; write NAME [SHAPE], NAME [SHAPE]? or NAME [SHAPE] < AXIS");
  operand.name = text.substr(0, n);
  operand.type = trimmed(std::string_view(text).substr(n));
  return operand;
}

uint32_t type_named(const std::string& word) {
  if (word == "int") return HX_ARG_INT;
  if (word == "float") return HX_ARG_FLOAT;
  if (word == "bool") return HX_ARG_BOOL;
  if (word == "text") return HX_ARG_STRING;
  if (word == "ints") return HX_ARG_INTS;
  refuse_signature("has an attribute of the unknown type '" + word + "'; types are int, float, bool, text and ints");
}

uint32_t type_of_default(const std::string& text) {
  if (text[0] == '"') return HX_ARG_STRING;
  if (text[0] == '[') return HX_ARG_INTS;
  if (text == "true" || text == "false") return HX_ARG_BOOL;
  return parse_argument(HX_ARG_INT, text) ? HX_ARG_INT : HX_ARG_FLOAT;
}

// Removes and returns the next word. Text in quotes or brackets is part of a word.
std::string take_word(std::string& text) {
  const size_t end = std::min(Plain(text).find(" "), text.size());
  std::string word = text.substr(0, end);
  text = trimmed(std::string_view(text).substr(end));
  return word;
}

AttributeSpec read_attribute(std::string text) {
  const std::string whole = text;
  AttributeSpec a;
  const size_t n = name_length(text);
  if (n == 0) refuse_signature("has an attribute '" + whole + "' without a name");
  a.name = text.substr(0, n);
  text = trimmed(std::string_view(text).substr(n));
  if (const size_t open = Plain(text).find("("); open != std::string::npos) {
    a.description = text.substr(open + 1);
    if (!take_end(a.description, ")")) refuse_signature("has text after the description of '" + a.name + "'");
    text = trimmed(std::string_view(text).substr(0, open));
  }
  std::string type;
  bool optional = false, quoted = false;
  if (take_start(text, ":")) type = take_word(text), optional = take_end(type, "?");
  if (take_start(text, "?")) optional = true;
  if (take_start(text, "=")) {
    a.default_text = take_word(text);
    if (a.default_text.empty()) refuse_signature("lacks the default of '" + a.name + "'");
    if (type.empty()) a.type = type_of_default(a.default_text);
    quoted = a.default_text.size() >= 2 && a.default_text.front() == '"' && a.default_text.back() == '"';
    if (quoted) a.default_text = a.default_text.substr(1, a.default_text.size() - 2), optional = true;
  }
  if (take_start(text, "in ")) a.range = take_word(text);
  if (take_start(text, "since 1.")) {
    const auto minor = parse_argument(HX_ARG_INT, take_word(text));
    if (!minor || std::get<int64_t>(*minor) < 0 || std::get<int64_t>(*minor) > 1000)
      refuse_signature("has no contract after 'since' of '" + a.name + "'");
    a.since = static_cast<uint16_t>(std::get<int64_t>(*minor));
  }
  if (!text.empty()) refuse_signature("has '" + text + "' after the attribute '" + a.name + "'");
  if (!type.empty()) a.type = type_named(type);
  if (a.type == 0) refuse_signature("gives the attribute '" + a.name + "' neither type nor default");
  a.required = !optional && a.default_text.empty();
  if (!a.default_text.empty() && !parse_argument(a.type, a.default_text))
    refuse_signature("has the default '" + a.default_text + "' of '" + a.name + "', which is not " +
                     std::string(argument_type_name(a.type)));
  if (!a.range.empty() && !is_range(a.type, a.range))
    refuse_signature("has the range '" + a.range + "' of '" + a.name + "', which does not fit " +
                     std::string(argument_type_name(a.type)));
  return a;
}

std::vector<OperandSpec> read_operands(std::string_view text, bool& more) {
  std::vector<OperandSpec> operands;
  for (std::string& part : Plain(text).split()) {
    if (part == "...")
      more = true;
    else
      operands.push_back(read_operand(std::move(part)));
  }
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (operands[i].name == operands[k].name) refuse_signature("has two operands '" + operands[i].name + "'");
  return operands;
}

// Returns the index of the axis of this name in the shape of an operand; negative, from the end, if "..." precedes it.
std::optional<int> axis_named(const OperandSpec& operand, const std::string& name) {
  const auto axes = operand.axes();
  bool any = false;
  for (size_t i = 0; axes && i < axes->size(); ++i) {
    any = any || (*axes)[i] == "...";
    if ((*axes)[i] == name) return any ? static_cast<int>(i) - static_cast<int>(axes->size()) : static_cast<int>(i);
  }
  return std::nullopt;
}

struct Bound {
  size_t input;
  int axis;
};
std::optional<Bound> bound_of(const Signature& s, size_t input) {
  const std::string& below = s.inputs[input].below;
  if (below.empty()) return std::nullopt;
  for (size_t i = 0; i < s.inputs.size(); ++i)
    if (i != input)
      if (const auto axis = axis_named(s.inputs[i], below)) return Bound{i, *axis};
  return std::nullopt;
}

std::string joined(const std::vector<OperandSpec>& operands, bool more) {
  std::string text;
  for (const OperandSpec& o : operands) text += (text.empty() ? "" : ", ") + o.str();
  if (more) text += text.empty() ? "..." : ", ...";
  return text;
}

}  // namespace

std::string OperandSpec::str() const {
  return name + (type.empty() ? "" : " " + type) + (below.empty() ? "" : " < " + below) + (repeated ? "..." : "") +
         (optional ? "?" : "");
}

std::optional<std::vector<std::string>> OperandSpec::axes() const {
  const size_t open = type.find('['), close = type.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  return Plain(std::string_view(type).substr(open + 1, close - open - 1)).split();
}

std::optional<AttributeValue> AttributeSpec::value_if_absent() const {
  if (required || (default_text.empty() && type != HX_ARG_STRING)) return std::nullopt;
  return parse_argument(type, default_text);
}

const AttributeSpec* Signature::attribute(std::string_view name) const {
  for (const AttributeSpec& a : attributes)
    if (a.name == name) return &a;
  return nullptr;
}

size_t Signature::fewest_inputs() const {
  return static_cast<size_t>(
      std::count_if(inputs.begin(), inputs.end(), [](const OperandSpec& o) { return !o.optional; }));
}
size_t Signature::most_inputs() const {
  const bool any = more_inputs || std::any_of(inputs.begin(), inputs.end(), [](const auto& o) { return o.repeated; });
  return any ? SIZE_MAX : inputs.size();
}

std::string Signature::str() const {
  std::string named;
  for (const AttributeSpec& a : attributes) {
    named += (named.empty() ? "" : ", ") + a.name;
    if (!a.required && a.type == HX_ARG_STRING)
      named += " = \"" + a.default_text + "\"";
    else if (!a.default_text.empty())
      named += " = " + a.default_text;
    else if (!a.required)
      named += "?";
  }
  if (more_attributes) named += named.empty() ? "..." : ", ...";
  std::string text = known ? joined(inputs, more_inputs) : "...";
  if (!named.empty()) text += " {" + named + "}";
  return results.empty() ? text : text + " -> " + joined(results, false);
}

Signature parse_signature(const std::string& text) {
  Signature s;
  s.more_attributes = text.empty();
  if (text.empty()) return s;
  const size_t arrow = Plain(text).find(" -> ");
  if (arrow == std::string::npos) refuse_signature("has no ' -> ' before its results: " + text);
  std::string left = trimmed(std::string_view(text).substr(0, arrow));
  std::string right = trimmed(std::string_view(text).substr(arrow + 4));
  if (const size_t semicolon = Plain(right).find(";"); semicolon != std::string::npos) {
    s.notes = trimmed(std::string_view(right).substr(semicolon + 1));
    right.resize(semicolon);
  }
  if (const size_t open = Plain(left).find("{"); open != std::string::npos) {
    if (left.back() != '}') refuse_signature("has text between its attributes and results: " + text);
    for (std::string& part : Plain(std::string_view(left).substr(open + 1, left.size() - open - 2)).split()) {
      if (part == "...") {
        s.more_attributes = true;
        continue;
      }
      s.attributes.push_back(read_attribute(std::move(part)));
      if (s.attribute(s.attributes.back().name) != &s.attributes.back())
        refuse_signature("has two attributes '" + s.attributes.back().name + "'");
    }
    left.resize(open);
  }
  s.known = true;
  s.inputs = read_operands(left, s.more_inputs);
  bool more_results = false;
  s.results = read_operands(right, more_results);
  if (s.results.empty() || more_results) refuse_signature("names no result: " + text);
  for (size_t i = 0; i < s.inputs.size(); ++i)
    if (!s.inputs[i].below.empty() && !bound_of(s, i) && !s.attribute(s.inputs[i].below))
      refuse_signature("bounds '" + s.inputs[i].name + "' by '" + s.inputs[i].below +
                       "', which is neither an axis nor an attribute");
  return s;
}

std::optional<int64_t> index_limit(const Signature& s, size_t input, const AttributeMap& attributes,
                                   std::span<const TensorType> inputs) {
  if (input >= s.inputs.size() || s.inputs[input].below.empty()) return std::nullopt;
  const auto bound = bound_of(s, input);
  if (!bound) return attributes.integer(s.inputs[input].below);
  if (bound->input >= inputs.size()) return std::nullopt;
  const Shape& shape = inputs[bound->input].shape;
  const int64_t axis = bound->axis < 0 ? static_cast<int64_t>(shape.rank()) + bound->axis : bound->axis;
  if (axis < 0 || axis >= static_cast<int64_t>(shape.rank())) return std::nullopt;
  return shape[static_cast<uint32_t>(axis)];
}

bool is_looked_up(const Signature& s, size_t input) {
  for (size_t i = 0; i < s.inputs.size(); ++i)
    if (const auto bound = bound_of(s, i); bound && bound->input == input && bound->axis == 0) return true;
  return false;
}

}  // namespace harmonics::engine
