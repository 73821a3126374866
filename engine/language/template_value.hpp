// Values of chat templates. They behave like Python's where templates can observe it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <boost/json/value.hpp>

#include "engine/language/template_budget.hpp"

namespace harmonics::engine::jinja {

class Value;
struct Macro;  // of a running template
struct NamespaceObject;

// A method of a string, list or map, or a function of the language.
struct Callable {
  std::string name;
  std::shared_ptr<const Value> self;  // null for a function
};

struct Undefined {
  std::string name;  // what was looked up, for messages: its first bytes
};

// Immutable as part of a Value. Nested at most kDepth deep, so that no recursion over a value overflows the stack, and
// of at most kWeight bytes when printed, although parts may be shared.
using List = std::vector<Value>;
using Map = std::vector<std::pair<Value, Value>>;  // in insertion order
constexpr int kDepth = 64;
constexpr uint64_t kWeight = uint64_t{32} << 20;

class Value {
 public:
  Value() : data_(Undefined{}) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
  explicit Value(std::string_view value) : Value(std::string(value)) {}
  explicit Value(const char* value) : Value(std::string(value)) {}
  // These throw ErrorKind::Usage if the value would be nested too deeply, too large, or contain something other than
  // data.
  static Value list(List items);
  static Value map(Map items);
  static Value none();
  static Value undefined(std::string name);
  static Value callable(Callable callable);
  static Value macro(std::shared_ptr<const Macro> macro);
  static Value space(std::shared_ptr<NamespaceObject> space);
  static Value of(const boost::json::value& value);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_real() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_integer() || is_real(); }
  bool is_text() const { return std::holds_alternative<Text>(data_); }
  bool is_list() const { return std::holds_alternative<Items>(data_); }
  bool is_map() const { return std::holds_alternative<Entries>(data_); }
  bool is_callable() const { return as_callable() || as_macro(); }

  // These require a value of that kind.
  bool truth_value() const { return std::get<bool>(data_); }
  int64_t integer() const;  // also for a bool
  double real() const;      // for any number
  const std::string& text() const { return *std::get<Text>(data_); }
  const List& items() const { return *std::get<Items>(data_).value; }
  const Map& entries() const { return *std::get<Entries>(data_).value; }
  const Undefined& undefined() const { return std::get<Undefined>(data_); }
  // These return null for other kinds.
  const Callable* as_callable() const;
  const Macro* as_macro() const;
  NamespaceObject* as_namespace() const;

  int depth() const;        // 0 for values other than lists and maps
  uint64_t weight() const;  // approximate bytes visited by a traversal
  bool truth() const;
  // Returns the value of a key of a map; null if it has no such key.
  const Value* find(Budget& budget, std::string_view key) const;
  const Value* find(Budget& budget, const Value& key) const;
  const char* kind() const;  // for messages: "a list"

 private:
  template <typename T>
  struct Nested {
    std::shared_ptr<const T> value;
    int depth;
    uint64_t weight;
  };
  using Text = std::shared_ptr<const std::string>;
  using Items = Nested<List>;
  using Entries = Nested<Map>;
  std::variant<std::monostate, Undefined, bool, int64_t, double, Text, Items, Entries, std::shared_ptr<const Callable>,
               std::shared_ptr<const Macro>, std::shared_ptr<NamespaceObject>>
      data_;
};

// Attributes that a template may set. Their values are data only, so that no namespace contains itself.
struct NamespaceObject {
  std::vector<std::pair<std::string, Value>> attributes;
  void set(const std::string& name, Value value);
  const Value* find(std::string_view name) const;
};

// All of these count their work in the budget.
bool equal(Budget& budget, const Value& a, const Value& b);
// Returns -1, 0 or 1. Throws ErrorKind::Usage for kinds without an order.
int order(Budget& budget, const Value& a, const Value& b);
// Like Python's str().
std::string text_of(Budget& budget, const Value& value);
// Like Python's json.dumps(value, ensure_ascii=False). `indent` < 0: on one line. Throws ErrorKind::Usage for values
// other than data.
struct JsonStyle {
  int indent = -1;
  bool sorted = false;
  std::string item = ", ", key = ": ";
};
std::string json_of(Budget& budget, const Value& value, const JsonStyle& style = {});

}  // namespace harmonics::engine::jinja
