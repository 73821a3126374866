// Interpreter of chat templates. Templates have access only to the values that are passed in.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/language/template_budget.hpp"
#include "engine/language/template_syntax.hpp"
#include "engine/language/template_value.hpp"

namespace harmonics::engine::jinja {

struct Scope {
  std::map<std::string, Value, std::less<>> names;
  std::shared_ptr<Scope> parent;
};

struct Macro {
  const Node* node;
  std::weak_ptr<Scope> scope;  // where it was defined
};

// The arguments of a call, without the value before '|' or '.'.
struct CallArguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string, Value>> named;

  // Finds an argument by position or name; null if not given.
  const Value* find(size_t place, std::string_view name) const;
  // Throws ErrorKind::Usage for more values than `names`, or other names.
  void expect(std::string_view what, std::initializer_list<std::string_view> names) const;
};

class Run {
 public:
  Run(const std::string& name, const RunLimits& limits, std::time_t now);

  void define(const std::string& name, Value value) { scope_->names[name] = std::move(value); }
  // Throws ErrorKind::Usage with the location.
  std::string render(const Node& root);

  // Called by filters, tests and functions; these throw ErrorKind::Usage.
  Budget& budget() { return budget_; }
  void spend(uint64_t steps) { budget_.spend(steps); }
  void charge(uint64_t bytes) { budget_.charge(bytes); }
  std::string text(const Value& value) { return text_of(budget_, value); }
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  bool contains(const Value& all, const Value& one);
  std::time_t now() const { return now_; }

 private:
  enum class Flow { next, leave_loop, next_item };

  Flow execute(const Node& node);
  Flow execute_one(const Node& node);
  Flow branch(const Node& node);
  Flow loop(const Node& node);
  void assign(const Node& node, Value value);
  void bind(const std::vector<std::string>& targets, const Value& value);
  void print(const Value& value);
  std::string captured(const Node& body);

  Value evaluate(const Node& node);
  Value evaluate_one(const Node& node);
  Value name_of(const Node& node);
  Value slice(const Node& node);
  Value map(const Node& node);
  Value unary(const Node& node);
  Value binary(const Node& node);
  Value arithmetic(const std::string& sign, const Value& a, const Value& b);
  Value repeated(const Value& value, uint64_t count);
  Value compare(const Node& node);
  CallArguments arguments(const Node& node);
  Value call(const Node& node);
  Value call_macro(const Macro& macro, const CallArguments& arguments);

  const std::string& name_;
  Budget budget_;
  const std::time_t now_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::string* out_ = nullptr;
  const Value* filtered_ = nullptr;  // what the text of a set block stands for
  const Node* current_ = nullptr;    // that is evaluated: the place of an error
};

// Evaluate `value | name(arguments)`, `value is name(arguments)`, and self.name(arguments) or name(arguments). Throw
// ErrorKind::Usage for unknown names.
Value apply_filter(Run& run, const std::string& name, const Value& value, const CallArguments& arguments);
bool apply_test(Run& run, const std::string& name, const Value& value, const CallArguments& arguments);
Value call_function(Run& run, const Callable& function, const CallArguments& arguments);
// Return whether values of the kind of `self` have this method, and whether there is this function.
bool has_method(Run& run, const Value& self, std::string_view name);
bool has_function(std::string_view name);
// Returns the items of a list, the keys of a map or the characters of a string; nothing for an undefined value.
List items_of(Run& run, const Value& value);

}  // namespace harmonics::engine::jinja
