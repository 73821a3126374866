#include "engine/language/template_value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <boost/json.hpp>
#include <fmt/core.h>
#include <harmonics/error.hpp>

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

void append_hex(std::string& out, const char* prefix, unsigned char value) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += prefix;
  out += {kDigits[value >> 4], kDigits[value & 15]};
}

void append_python(std::string& out, const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  out += quote;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7F)
      append_hex(out, "\\x", byte);
    else
      out += c;
  }
  out += quote;
}

void append_json(std::string& out, const std::string& text) {
  constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
  out += '"';
  for (const char c : text) {
    if (const size_t known = kFrom.find(c); known != std::string_view::npos)
      out += {'\\', kTo[known]};
    else if (static_cast<unsigned char>(c) < 0x20)
      append_hex(out, "\\u00", static_cast<unsigned char>(c));
    else
      out += c;
  }
  out += '"';
}

// The shortest text that is read back as the same number; plain from 1e-4 up to 1e16, as Python writes it.
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

// As Python's repr().
void append_repr(std::string& out, const Value& value) {
  if (value.is_text()) {
    append_python(out, value.text());
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_bool()) {
    out += value.truth_value() ? "True" : "False";
  } else if (value.is_integer()) {
    out += std::to_string(value.integer());
  } else if (value.is_real()) {
    out += number_text(value.real());
  } else if (value.is_list()) {
    out += '[';
    for (size_t i = 0; i < value.items().size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, value.items()[i]);
    }
    out += ']';
  } else if (value.is_map()) {
    out += '{';
    for (size_t i = 0; i < value.entries().size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, value.entries()[i].first);
      out += ": ";
      append_repr(out, value.entries()[i].second);
    }
    out += '}';
  } else {
    out += fmt::format("<{}>", value.kind());
  }
}

class JsonWriter {
 public:
  JsonWriter(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}
  void write(const Value& value, int level) {
    if (out_.size() > budget_.bytes_left()) budget_.fail_bytes();  // indentation makes much of little
    if (value.is_list()) return write_items(value.items(), level);
    if (value.is_map()) return write_entries(value.entries(), level);
    if (value.is_text())
      append_json(out_, value.text());
    else if (value.is_none())
      out_ += "null";
    else if (value.is_bool())
      out_ += value.truth_value() ? "true" : "false";
    else if (value.is_number())
      append_repr(out_, value);
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
    if (style_.sorted) sort(entries);
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      separate(i == 0);
      line(level + 1);
      const Value& key = entries[i]->first;
      append_json(out_, key.is_text() ? key.text() : json_of(budget_, key));
      out_ += style_.key;
      write(entries[i]->second, level + 1);
    }
    line(level);
    out_ += '}';
  }
  // By the texts of the keys.
  void sort(std::vector<const std::pair<Value, Value>*>& entries) {
    std::vector<std::pair<std::string, const std::pair<Value, Value>*>> named;
    for (const auto* entry : entries) {
      budget_.spend(16);
      named.emplace_back(text_of(budget_, entry->first), entry);
    }
    std::stable_sort(named.begin(), named.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < named.size(); ++i) entries[i] = named[i].second;
  }

  Budget& budget_;
  const JsonStyle& style_;
  std::string out_;
};

int sign(bool less, bool greater) { return less ? -1 : greater; }

constexpr size_t kShownName = 64;  // bytes

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
  if (name.size() > kShownName) {
    size_t end = kShownName;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // not inside a character
    name.resize(end);
  }
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

const Value* Value::find(Budget& budget, std::string_view key) const {
  budget.spend(entries().size() / 16 + key.size() / 64);
  for (const auto& [name, value] : entries())
    if (name.is_text() && name.text() == key) return &value;
  return nullptr;
}

const Value* Value::find(Budget& budget, const Value& key) const {
  if (key.is_text()) return find(budget, key.text());
  budget.spend(entries().size() / 8);
  for (const auto& [name, value] : entries())
    if (equal(budget, name, key)) return &value;
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

bool equal(Budget& budget, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return numbers_equal(a, b);
  if (a.is_text() && b.is_text()) {
    if (a.text().size() != b.text().size()) return false;
    budget.spend(a.text().size() / 64);
    return a.text() == b.text();
  }
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  const auto same = [&](const Value& x, const Value& y) { return equal(budget, x, y); };
  if (a.is_list() && b.is_list()) {
    if (a.items().size() != b.items().size()) return false;
    budget.spend(1 + a.items().size() / 8);
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), same);
  }
  if (a.is_map() && b.is_map()) {
    if (a.entries().size() != b.entries().size()) return false;
    return std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
      budget.spend(1);
      const Value* other = b.find(budget, entry.first);
      return other && same(entry.second, *other);
    });
  }
  if (a.as_namespace() || b.as_namespace()) return a.as_namespace() == b.as_namespace();
  return a.as_macro() && a.as_macro() == b.as_macro();
}

int order(Budget& budget, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_real() || b.is_real()) return sign(a.real() < b.real(), a.real() > b.real());
    return sign(a.integer() < b.integer(), a.integer() > b.integer());
  }
  if (a.is_text() && b.is_text()) {
    budget.spend(std::min(a.text().size(), b.text().size()) / 64);
    const int place = a.text().compare(b.text());
    return sign(place<0, place> 0);
  }
  if (a.is_list() && b.is_list()) {
    const size_t both = std::min(a.items().size(), b.items().size());
    budget.spend(1 + both / 8);
    for (size_t i = 0; i < both; ++i)
      if (!equal(budget, a.items()[i], b.items()[i])) return order(budget, a.items()[i], b.items()[i]);
    return sign(a.items().size() < b.items().size(), a.items().size() > b.items().size());
  }
  throw Error(ErrorKind::Usage, fmt::format("{} and {} have no order", a.kind(), b.kind()));
}

std::string text_of(Budget& budget, const Value& value) {
  if (value.is_undefined()) return "";
  if (value.is_text()) {
    budget.charge(value.text().size());
    return value.text();
  }
  budget.scan(value.weight());
  std::string out;
  append_repr(out, value);
  budget.charge(out.size());
  return out;
}

std::string json_of(Budget& budget, const Value& value, const JsonStyle& style) {
  budget.scan(value.weight());
  JsonWriter writer(budget, style);
  writer.write(value, 0);
  std::string text = writer.take();
  budget.charge(text.size());
  return text;
}

}  // namespace harmonics::engine::jinja
