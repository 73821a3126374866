#include "engine/plugin/arguments.hpp"

#include <charconv>
#include <cmath>
#include <set>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/plugin/range.hpp"

namespace harmonics::engine {

namespace {

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53: all integers up to this are exact in a double

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

template <typename T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const char* first = text.data() + (text.size() > 1 && text[0] == '+' && text[1] != '-');
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<AttributeValue> parse_integers(std::string text) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  std::vector<int64_t> values;
  for (size_t start = 0; start <= text.size() && !trimmed(text).empty();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const auto value = parse_number<int64_t>(trimmed(text.substr(start, end - start)));
    if (!value) return std::nullopt;
    values.push_back(*value);
    start = end + 1;
  }
  return values;
}

// Returns the text between quotes, with the escapes of flows; text without a quote in front is returned as it is.
std::string without_quotes(const std::string& text) {
  if (text.empty() || text.front() != '"') return text;
  std::string result;
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '"' && at + 1 == text.size()) return result;
    if (text[at] == '"') break;
    const size_t escape = text[at] == '\\' ? std::string_view("\"\\ntr").find(text[at + 1]) : std::string_view::npos;
    if (escape != std::string_view::npos) ++at;
    result += escape == std::string_view::npos ? text[at] : "\"\\\n\t\r"[escape];
  }
  throw Error(ErrorKind::Usage, fmt::format("the text {} does not end with its quote", text), {},
              {"write \\\" for a quote within a text"});
}

std::optional<AttributeValue> parse_flag(const std::string& text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return std::nullopt;
}

template <typename T>
std::optional<AttributeValue> widened(const std::optional<T>& value) {
  return value ? std::optional<AttributeValue>(*value) : std::nullopt;
}

std::string number_text(const WrittenNumber& n) {
  return n.integral ? fmt::format("{:.0f}", n.value) : fmt::format("{}", n.value);
}

struct Spoken {
  std::string operator()(const WrittenNumber& n) const { return number_text(n); }
  std::string operator()(const std::string& s) const { return "\"" + s + "\""; }
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(const WrittenWord& w) const { return "'" + w.text + "'"; }
  std::string operator()(const WrittenList& list) const {
    std::string text = "[";
    for (const WrittenValue& v : list) text += (text.size() > 1 ? ", " : "") + std::visit(*this, v.value);
    return text + "]";
  }
};

std::optional<int64_t> whole(const WrittenValue& v) {
  const auto* n = std::get_if<WrittenNumber>(&v.value);
  if (!n || n->value != std::floor(n->value) || std::abs(n->value) > kExactIntegers) return std::nullopt;
  return static_cast<int64_t>(n->value);
}

std::optional<AttributeValue> as_integers(const WrittenValue& v) {
  std::vector<int64_t> values;
  if (const auto one = whole(v)) return std::vector<int64_t>{*one};
  const auto* list = std::get_if<WrittenList>(&v.value);
  if (!list) return std::nullopt;
  for (const WrittenValue& item : *list) {
    const auto value = whole(item);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

// Returns the value as text. Accepts words and numbers too: approximate=tanh, padding=1.
std::optional<AttributeValue> as_text(const WrittenValue& v) {
  if (const auto* s = std::get_if<std::string>(&v.value)) return *s;
  if (const auto* w = std::get_if<WrittenWord>(&v.value)) return w->text;
  if (const auto* n = std::get_if<WrittenNumber>(&v.value)) return number_text(*n);
  return std::nullopt;
}

std::optional<AttributeValue> convert(uint32_t type, const WrittenValue& v) {
  const auto* number = std::get_if<WrittenNumber>(&v.value);
  const auto* flag = std::get_if<bool>(&v.value);
  switch (type) {
    case HX_ARG_INT:
      return widened(whole(v));
    case HX_ARG_FLOAT:
      return number ? std::optional<AttributeValue>(number->value) : std::nullopt;
    case HX_ARG_BOOL:
      return flag ? std::optional<AttributeValue>(*flag) : std::nullopt;
    case HX_ARG_STRING:
      return as_text(v);
    case HX_ARG_INTS:
      return as_integers(v);
    default:
      return std::nullopt;
  }
}

std::string called(const Item& item) { return fmt::format("{} '{}'", kind_name(item.kind), item.name); }

const ArgumentSpec* find_spec(const Item& item, const std::string& name) {
  for (const ArgumentSpec& spec : item.arguments)
    if (spec.name == name) return &spec;
  return nullptr;
}

[[noreturn]] void unknown(const Item& item, const std::string& name, ErrorKind kind, Span span) {
  const char* word = kind == ErrorKind::Usage ? "option" : "argument";
  Error error(kind, fmt::format("{} has no {} '{}'", called(item), word, name), span);
  std::vector<std::string> known;
  for (const ArgumentSpec& spec : item.arguments) known.push_back(spec.name);
  if (auto near = nearest(name, known)) error.note(fmt::format("did you mean '{}'?", *near));
  throw error.note("note: it is used as " + signature(item));
}

void fill_defaults(const Item& item, const std::set<std::string>& given, AttributeMap& values, ErrorKind kind,
                   Span span) {
  for (const ArgumentSpec& spec : item.arguments) {
    if (given.count(spec.name)) continue;
    if (spec.required) {
      const char* word = kind == ErrorKind::Usage ? "option" : "argument";
      throw Error(kind,
                  fmt::format("{} needs its {} '{}'{}", called(item), word, spec.name,
                              spec.description.empty() ? "" : ": " + spec.description),
                  span)
          .note("note: it is used as " + signature(item));
    }
    if (!spec.default_text.empty()) values.set(spec.name, *parse_argument(spec.type, spec.default_text));
  }
}

// Matches each written argument with its row of the schema.
class Matcher {
 public:
  explicit Matcher(const Item& item) : item_(item) {}

  const ArgumentSpec& match(const WrittenArgument& a) {
    const ArgumentSpec& spec = a.name.empty() ? positional(a) : named(a);
    if (!given_.insert(spec.name).second)
      throw Error(ErrorKind::Name, fmt::format("argument '{}' of {} is given twice", spec.name, called(item_)),
                  place(a));
    return spec;
  }
  const std::set<std::string>& given() const { return given_; }

 private:
  static Span place(const WrittenArgument& a) { return a.name.empty() ? a.value.span : a.name_span; }

  const ArgumentSpec& positional(const WrittenArgument& a) {
    if (after_named_)
      throw Error(ErrorKind::Syntax, "an argument without a name follows one with a name", a.value.span)
          .note("name it too, or write it first: " + signature(item_));
    if (next_ < item_.arguments.size()) return item_.arguments[next_++];
    const std::string count =
        item_.arguments.empty() ? "no arguments" : fmt::format("at most {}", item_.arguments.size());
    throw Error(ErrorKind::Name, fmt::format("{} takes {}", called(item_), count), a.value.span)
        .note("note: it is used as " + signature(item_));
  }
  const ArgumentSpec& named(const WrittenArgument& a) {
    after_named_ = true;
    if (const ArgumentSpec* spec = find_spec(item_, a.name)) return *spec;
    unknown(item_, a.name, ErrorKind::Name, a.name_span);
  }

  const Item& item_;
  std::set<std::string> given_;
  size_t next_ = 0;
  bool after_named_ = false;
};

[[noreturn]] void wrong_type(const Item& item, const ArgumentSpec& spec, const std::string& text, ErrorKind kind,
                             Span span) {
  throw Error(
      kind, fmt::format("'{}' of {} must be {}, not {}", spec.name, called(item), argument_type_name(spec.type), text),
      span);
}

void expect_range(const Item& item, const ArgumentSpec& spec, const AttributeValue& value, const std::string& text,
                  ErrorKind kind, Span span) {
  if (spec.range.empty() || in_range(value, spec.range)) return;
  throw Error(kind, fmt::format("'{}' of {} is {}", spec.name, called(item), text), span,
              {"give " + spoken_range(spec.range)});
}

}  // namespace

std::string_view argument_type_name(uint32_t type) {
  switch (type) {
    case HX_ARG_INT:
      return "a whole number";
    case HX_ARG_FLOAT:
      return "a number";
    case HX_ARG_BOOL:
      return "true or false";
    case HX_ARG_STRING:
      return "a string";
    case HX_ARG_INTS:
      return "whole numbers";
    case HX_ARG_LAYER:
      return "the name of a layer";
    default:
      throw Error(ErrorKind::Internal, fmt::format("no argument type has the number {}", type));
  }
}

std::optional<AttributeValue> parse_argument(uint32_t type, const std::string& text) {
  switch (type) {
    case HX_ARG_INT:
      return widened(parse_number<int64_t>(text));
    case HX_ARG_FLOAT:
      return widened(parse_number<double>(text));
    case HX_ARG_BOOL:
      return parse_flag(text);
    case HX_ARG_STRING:
      return text;
    case HX_ARG_INTS:
      return parse_integers(text);
    default:
      return std::nullopt;
  }
}

size_t end_of_argument(std::string_view text, size_t at) {
  int depth = 0;
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '\\')
      ++at;
    else if (c == '"')
      quoted = !quoted;
    else if (quoted)
      continue;
    else if (c == '(' || c == '[')
      ++depth;
    else if (c == ')' || c == ']')
      --depth;
    else if (c == ',' && depth <= 0)
      return at;
  }
  return text.size();
}

std::vector<std::pair<std::string, std::string>> split_arguments(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> parts;
  for (size_t start = 0; start <= text.size() && !trimmed(text).empty();) {
    const size_t end = end_of_argument(text, start);
    const std::string part = trimmed(text.substr(start, end - start));
    const size_t sign = part.find_first_of("=\"");
    const bool named = sign != std::string::npos && part[sign] == '=';
    parts.emplace_back(named ? trimmed(part.substr(0, sign)) : "",
                       without_quotes(named ? trimmed(part.substr(sign + 1)) : part));
    start = end + 1;
  }
  return parts;
}

std::string signature(const Item& item) {
  std::string text;
  for (const ArgumentSpec& spec : item.arguments) {
    text += (text.empty() ? "" : ", ") + spec.name;
    if (!spec.default_text.empty())
      text += " = " + spec.default_text;
    else if (!spec.required)
      text += "?";
  }
  return text.empty() ? item.name : item.name + "(" + text + ")";
}

BoundArguments bind_arguments(const Item& item, const std::vector<WrittenArgument>& arguments, Span call) {
  BoundArguments bound;
  Matcher matcher(item);
  for (const WrittenArgument& a : arguments) {
    const ArgumentSpec& spec = matcher.match(a);
    if (spec.type == HX_ARG_LAYER) {
      const auto* word = std::get_if<WrittenWord>(&a.value.value);
      if (!word) wrong_type(item, spec, std::visit(Spoken{}, a.value.value), ErrorKind::Type, a.value.span);
      bound.layers.push_back({spec.name, word->text, a.value.span});
      continue;
    }
    auto value = convert(spec.type, a.value);
    if (!value) wrong_type(item, spec, std::visit(Spoken{}, a.value.value), ErrorKind::Type, a.value.span);
    expect_range(item, spec, *value, std::visit(Spoken{}, a.value.value), ErrorKind::Type, a.value.span);
    bound.values.set(spec.name, std::move(*value));
  }
  fill_defaults(item, matcher.given(), bound.values, ErrorKind::Name, call);
  return bound;
}

AttributeMap bind_texts(const Item& item, const std::vector<std::pair<std::string, std::string>>& options) {
  AttributeMap values;
  std::set<std::string> given;
  for (const auto& [name, text] : options) {
    const ArgumentSpec* spec = find_spec(item, name);
    if (!spec) unknown(item, name, ErrorKind::Usage, {});
    if (!given.insert(name).second)
      throw Error(ErrorKind::Usage, fmt::format("option '{}' of {} is given twice", name, called(item)));
    auto value = parse_argument(spec->type, text);
    if (!value) wrong_type(item, *spec, "'" + text + "'", ErrorKind::Usage, {});
    expect_range(item, *spec, *value, "'" + text + "'", ErrorKind::Usage, {});
    values.set(name, std::move(*value));
  }
  fill_defaults(item, given, values, ErrorKind::Usage, {});
  return values;
}

AttributeMap complete_arguments(const Item& item, const AttributeMap& given) {
  AttributeMap values = given;
  std::set<std::string> names;
  for (const auto& [name, value] : given.entries()) names.insert(name);
  fill_defaults(item, names, values, ErrorKind::Name, {});
  return values;
}

bool is_argument_value(uint32_t type, const AttributeValue& value) {
  const bool integer = std::holds_alternative<int64_t>(value);
  const auto* number = std::get_if<double>(&value);
  switch (type) {
    case HX_ARG_INT:
      return integer || (number && *number == std::floor(*number) && std::abs(*number) <= kExactIntegers);
    case HX_ARG_FLOAT:
      return integer || number;
    case HX_ARG_BOOL:
      return integer || std::holds_alternative<bool>(value);
    case HX_ARG_STRING:
      return std::holds_alternative<std::string>(value);
    case HX_ARG_INTS:
      return std::holds_alternative<std::vector<int64_t>>(value);
    default:
      return false;
  }
}

}  // namespace harmonics::engine
