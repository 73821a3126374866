#include "engine/language/template_value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "formats/utf8.hpp"

namespace harmonics::engine::jinja {

namespace {

constexpr uint64_t kNode = 16;

// The depth and weight of a container.
struct Extent {
  int depth = 1;
  uint64_t weight = kNode;
  void add(const Value& inner) {
    if (inner.is_callable() || inner.as_namespace())
      throw Error(ErrorKind::Usage, fmt::format("{} cannot be stored in a list or map", inner.kind()));
    depth = std::max(depth, inner.depth() + 1);
    weight += inner.weight();
    if (depth > kDepth)
      throw Error(ErrorKind::Usage, fmt::format("lists and maps are nested more than {} deep", kDepth));
    if (weight > kWeight) throw Error(ErrorKind::Usage, fmt::format("a list or map is larger than {} bytes", kWeight));
  }
};

// As in Python, numbers of different kinds may be equal.
bool numbers_equal(const Value& a, const Value& b) {
  if (a.is_real() || b.is_real()) return a.real() == b.real();
  return a.integer() == b.integer();
}

std::string quoted_python(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint point = decode_utf8(text, at);
    const char c = text[at];
    if (c == quote || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (point.value < 0x20 || point.value == 0x7F)
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(point.value));
    else
      out.append(text, at, point.length);
    at += point.length;
  }
  return out += quote;
}

std::string quoted_json(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        else
          out += c;
    }
  }
  return out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}
  void write(const Value& value, int level) {
    if (value.is_list()) return write_items(value.items(), level);
    if (value.is_map()) return write_entries(value.entries(), level);
    if (value.is_text())
      out_ += quoted_json(value.text());
    else if (value.is_none())
      out_ += "null";
    else if (value.is_bool())
      out_ += value.truth_value() ? "true" : "false";
    else if (value.is_number())
      out_ += text_of(value);
    else
      throw Error(ErrorKind::Usage, fmt::format("{} cannot be written as JSON", value.kind()));
  }
  std::string take() { return std::move(out_); }

 private:
  void line(int level) {
    if (style_.indent >= 0) out_ += '\n' + std::string(static_cast<size_t>(level * style_.indent), ' ');
  }
  void separate(bool first) {
    if (first) return;
    out_ += style_.indent >= 0 && style_.item == ", " ? "," : style_.item;
  }
  void write_items(const List& items, int level) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      separate(i == 0);
      line(level + 1);
      write(items[i], level + 1);
    }
    line(level);
    out_ += ']';
  }
  void write_entries(const Map& all, int level) {
    if (all.empty()) {
      out_ += "{}";
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : all) entries.push_back(&entry);
    if (style_.sorted)
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto* a, const auto* b) { return text_of(a->first) < text_of(b->first); });
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      separate(i == 0);
      line(level + 1);
      const Value& key = entries[i]->first;
      out_ += quoted_json(key.is_text() ? key.text() : json_of(key)) + style_.key;
      write(entries[i]->second, level + 1);
    }
    line(level);
    out_ += '}';
  }

  const JsonStyle& style_;
  std::string out_;
};

int sign(bool less, bool greater) { return less ? -1 : greater; }

}  // namespace

Value Value::list(List items) {
  Extent extent;
  for (const Value& item : items) extent.add(item);
  Value value;
  value.data_ = Items{std::make_shared<const List>(std::move(items)), extent.depth, extent.weight};
  return value;
}

Value Value::map(Map items) {
  Extent extent;
  for (const auto& [key, item] : items) {
    extent.add(key);
    extent.add(item);
  }
  Value value;
  value.data_ = Entries{std::make_shared<const Map>(std::move(items)), extent.depth, extent.weight};
  return value;
}

Value Value::none() {
  Value value;
  value.data_ = std::monostate{};
  return value;
}

Value Value::undefined(std::string name) {
  Value value;
  value.data_ = Undefined{std::move(name)};
  return value;
}

Value Value::callable(Callable callable) {
  Value value;
  value.data_ = std::make_shared<const Callable>(std::move(callable));
  return value;
}

Value Value::macro(std::shared_ptr<const Macro> macro) {
  Value value;
  value.data_ = std::move(macro);
  return value;
}

Value Value::space(std::shared_ptr<NamespaceObject> space) {
  Value value;
  value.data_ = std::move(space);
  return value;
}

Value Value::of(const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return none();
    case boost::json::kind::bool_:
      return Value(value.get_bool());
    case boost::json::kind::int64:
      return Value(static_cast<int64_t>(value.get_int64()));
    case boost::json::kind::uint64:
      return Value(static_cast<double>(value.get_uint64()));
    case boost::json::kind::double_:
      return Value(value.get_double());
    case boost::json::kind::string:
      return Value(std::string_view(value.get_string().data(), value.get_string().size()));
    case boost::json::kind::array: {
      List items;
      for (const boost::json::value& item : value.get_array()) items.push_back(of(item));
      return list(std::move(items));
    }
    case boost::json::kind::object: {
      Map entries;
      for (const auto& [key, item] : value.get_object())
        entries.emplace_back(Value(std::string_view(key.data(), key.size())), of(item));
      return map(std::move(entries));
    }
  }
  return none();
}

int64_t Value::integer() const { return is_bool() ? truth_value() : std::get<int64_t>(data_); }

double Value::real() const { return is_real() ? std::get<double>(data_) : static_cast<double>(integer()); }

const Callable* Value::as_callable() const {
  const auto* held = std::get_if<std::shared_ptr<const Callable>>(&data_);
  return held ? held->get() : nullptr;
}

const Macro* Value::as_macro() const {
  const auto* held = std::get_if<std::shared_ptr<const Macro>>(&data_);
  return held ? held->get() : nullptr;
}

NamespaceObject* Value::as_namespace() const {
  const auto* held = std::get_if<std::shared_ptr<NamespaceObject>>(&data_);
  return held ? held->get() : nullptr;
}

int Value::depth() const {
  if (const auto* items = std::get_if<Items>(&data_)) return items->depth;
  if (const auto* entries = std::get_if<Entries>(&data_)) return entries->depth;
  return 0;
}

uint64_t Value::weight() const {
  if (is_text()) return kNode + text().size();
  if (const auto* items = std::get_if<Items>(&data_)) return items->weight;
  if (const auto* entries = std::get_if<Entries>(&data_)) return entries->weight;
  return kNode;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_real()) return real() != 0;
  if (is_number()) return integer() != 0;
  if (is_text()) return !text().empty();
  if (is_list()) return !items().empty();
  if (is_map()) return !entries().empty();
  return true;
}

const Value* Value::find(std::string_view key) const {
  for (const auto& [name, value] : entries())
    if (name.is_text() && name.text() == key) return &value;
  return nullptr;
}

const Value* Value::find(const Value& key) const {
  for (const auto& [name, value] : entries())
    if (equal(name, key)) return &value;
  return nullptr;
}

const char* Value::kind() const {
  if (is_undefined()) return "an undefined value";
  if (is_none()) return "none";
  if (is_bool()) return "a truth value";
  if (is_integer()) return "a whole number";
  if (is_real()) return "a number";
  if (is_text()) return "a string";
  if (is_list()) return "a list";
  if (is_map()) return "a map";
  return as_namespace() ? "a namespace" : "a function";
}

void NamespaceObject::set(const std::string& name, Value value) {
  if (value.is_callable() || value.as_namespace())
    throw Error(ErrorKind::Usage, fmt::format("{} cannot be stored in a namespace", value.kind()));
  for (auto& [key, old] : attributes)
    if (key == name) {
      old = std::move(value);
      return;
    }
  attributes.emplace_back(name, std::move(value));
}

const Value* NamespaceObject::find(std::string_view name) const {
  for (const auto& [key, value] : attributes)
    if (key == name) return &value;
  return nullptr;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return numbers_equal(a, b);
  if (a.is_text() && b.is_text()) return a.text() == b.text();
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.is_list() && b.is_list())
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal);
  if (a.is_map() && b.is_map()) {
    if (a.entries().size() != b.entries().size()) return false;
    return std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
      const Value* other = b.find(entry.first);
      return other && equal(entry.second, *other);
    });
  }
  if (a.as_namespace() || b.as_namespace()) return a.as_namespace() == b.as_namespace();
  return a.as_macro() && a.as_macro() == b.as_macro();
}

int order(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_real() || b.is_real()) return sign(a.real() < b.real(), a.real() > b.real());
    return sign(a.integer() < b.integer(), a.integer() > b.integer());
  }
  if (a.is_text() && b.is_text()) return sign(a.text() < b.text(), a.text() > b.text());
  if (a.is_list() && b.is_list()) {
    for (size_t i = 0; i < std::min(a.items().size(), b.items().size()); ++i)
      if (!equal(a.items()[i], b.items()[i])) return order(a.items()[i], b.items()[i]);
    return sign(a.items().size() < b.items().size(), a.items().size() > b.items().size());
  }
  throw Error(ErrorKind::Usage, fmt::format("{} and {} have no order", a.kind(), b.kind()));
}

// Returns the shortest text that parses as the same number; without an exponent from 1e-4 up to 1e16, as in Python.
std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string text_of(const Value& value) {
  if (value.is_text()) return value.text();
  if (value.is_undefined()) return "";
  return repr_of(value);
}

std::string repr_of(const Value& value) {
  if (value.is_text()) return quoted_python(value.text());
  if (value.is_none()) return "None";
  if (value.is_undefined()) return "Undefined";
  if (value.is_bool()) return value.truth_value() ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.integer());
  if (value.is_real()) return number_text(value.real());
  std::string out;
  if (value.is_list()) {
    for (const Value& item : value.items()) out += (out.empty() ? "" : ", ") + repr_of(item);
    return "[" + out + "]";
  }
  if (value.is_map()) {
    for (const auto& [key, item] : value.entries())
      out += (out.empty() ? "" : ", ") + repr_of(key) + ": " + repr_of(item);
    return "{" + out + "}";
  }
  return fmt::format("<{}>", value.kind());
}

std::string json_of(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace harmonics::engine::jinja
