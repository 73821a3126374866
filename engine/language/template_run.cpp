#include "engine/language/template_run.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/language/template_lexer.hpp"
#include "engine/language/template_text.hpp"

namespace harmonics::engine::jinja {

namespace {

[[noreturn]] void fail_run(const std::string& what) { throw Error(ErrorKind::Usage, what); }

Value whole(bool overflow, int64_t value) {
  if (overflow) fail_run("a whole number overflows 64 bits");
  return Value(value);
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value power(const Value& a, const Value& b) {
  if (a.is_real() || b.is_real() || b.integer() < 0) return Value(std::pow(a.real(), b.real()));
  int64_t result = 1, base = a.integer();
  for (int64_t left = b.integer(); left > 0; left >>= 1) {
    if (left & 1 && __builtin_mul_overflow(result, base, &result)) return whole(true, 0);
    if (left > 1 && __builtin_mul_overflow(base, base, &base)) return whole(true, 0);
  }
  return Value(result);
}

Value of_numbers(const std::string& sign, const Value& a, const Value& b) {
  if (sign == "**") return power(a, b);
  const bool divides = sign == "/" || sign == "//" || sign == "%";
  if (divides && b.real() == 0) fail_run("a number is divided by 0");
  if (a.is_real() || b.is_real() || sign == "/") {
    const double x = a.real(), y = b.real();
    if (sign == "+") return Value(x + y);
    if (sign == "-") return Value(x - y);
    if (sign == "*") return Value(x * y);
    if (sign == "/") return Value(x / y);
    return Value(sign == "//" ? std::floor(x / y) : x - std::floor(x / y) * y);
  }
  const int64_t x = a.integer(), y = b.integer();
  int64_t result = 0;
  bool overflow = false;
  if (sign == "+") overflow = __builtin_add_overflow(x, y, &result);
  if (sign == "-") overflow = __builtin_sub_overflow(x, y, &result);
  if (sign == "*") overflow = __builtin_mul_overflow(x, y, &result);
  if (!divides) return whole(overflow, result);
  if (y == -1) {
    if (sign == "%") return Value(int64_t{0});
    overflow = __builtin_sub_overflow(int64_t{0}, x, &result);
    return whole(overflow, result);
  }
  result = floor_divide(x, y);
  return Value(sign == "//" ? result : x - result * y);
}

void expect_defined(const Value& value) {
  if (value.is_undefined()) fail_run(fmt::format("'{}' is undefined", value.undefined().name));
}

}  // namespace

const Value* CallArguments::find(size_t place, std::string_view name) const {
  if (place < values.size()) return &values[place];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

void CallArguments::expect(std::string_view what, std::initializer_list<std::string_view> names) const {
  if (values.size() > names.size())
    fail_run(
        fmt::format("'{}' takes {} at most, but there are {}", what, quantity(names.size(), "value"), values.size()));
  for (const auto& [key, value] : named)
    if (std::find(names.begin(), names.end(), key) == names.end())
      fail_run(fmt::format("'{}' takes no value '{}'", what, key));
}

Run::Run(const std::string& name, const RunLimits& limits, std::time_t now) : name_(name), budget_(limits), now_(now) {}

std::string Run::render(const Node& root) {
  std::string text;
  out_ = &text;
  try {
    execute(root);
  } catch (const Error& e) {
    throw template_error(e.kind(), name_, current_ ? current_->at : root.at, e.what());
  }
  return text;
}

void Run::print(const Value& value) {
  if (value.is_text()) {
    budget_.print(value.text().size());
    out_->append(value.text());
  } else {
    const std::string written = text(value);
    budget_.print(written.size());
    out_->append(written);
  }
}

Run::Flow Run::execute(const Node& node) {
  const Node* const outer = std::exchange(current_, &node);  // stays after an error
  spend(1);
  const Budget::Level level(budget_);
  const Flow flow = execute_one(node);
  current_ = outer;
  return flow;
}

Run::Flow Run::execute_one(const Node& node) {
  switch (node.kind) {
    case NodeKind::data:
      budget_.print(node.text.size());
      out_->append(node.text);
      return Flow::next;
    case NodeKind::output:
      print(evaluate(*node.children[0]));
      return Flow::next;
    case NodeKind::block:
      for (const NodePtr& child : node.children)
        if (const Flow flow = execute(*child); flow != Flow::next) return flow;
      return Flow::next;
    case NodeKind::branch:
      return branch(node);
    case NodeKind::loop:
      return loop(node);
    case NodeKind::set:
      assign(node, evaluate(*node.children[0]));
      return Flow::next;
    case NodeKind::set_block: {
      const Value text(captured(*node.children[0]));
      const Value* const outer = std::exchange(filtered_, &text);
      const Value value = evaluate(*node.children[1]);
      filtered_ = outer;
      if (node.targets.empty())
        print(value);
      else
        assign(node, value);
      return Flow::next;
    }
    case NodeKind::macro:
      scope_->names[node.text] = Value::macro(std::make_shared<const Macro>(Macro{&node, scope_}));
      return Flow::next;
    case NodeKind::scope: {
      spend(4 + 2 * node.targets.size());
      const auto inner = std::make_shared<Scope>();
      inner->parent = scope_;
      for (size_t i = 0; i < node.targets.size(); ++i) inner->names[node.targets[i]] = evaluate(*node.children[i]);
      const std::shared_ptr<Scope> outer = std::exchange(scope_, inner);
      const Flow flow = execute(*node.children.back());
      scope_ = outer;
      return flow;
    }
    default:
      return node.text == "break" ? Flow::leave_loop : Flow::next_item;
  }
}

Run::Flow Run::branch(const Node& node) {
  size_t i = 0;
  for (; i + 1 < node.children.size(); i += 2)
    if (evaluate(*node.children[i]).truth()) return execute(*node.children[i + 1]);
  return i < node.children.size() ? execute(*node.children[i]) : Flow::next;
}

void Run::bind(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) {
    scope_->names[targets[0]] = value;
    return;
  }
  const List items = items_of(*this, value);
  if (items.size() != targets.size())
    fail_run(fmt::format("{} names get the {} of {}", targets.size(), quantity(items.size(), "item"), value.kind()));
  for (size_t i = 0; i < targets.size(); ++i) scope_->names[targets[i]] = items[i];
}

void Run::assign(const Node& node, Value value) {
  if (node.target_attribute.empty()) return bind(node.targets, value);
  const Value* space = nullptr;
  for (const Scope* scope = scope_.get(); scope && !space; scope = scope->parent.get(), spend(1))
    if (const auto at = scope->names.find(node.targets[0]); at != scope->names.end()) space = &at->second;
  if (!space || !space->as_namespace()) fail_run(fmt::format("'{}' is not a namespace", node.targets[0]));
  spend(space->as_namespace()->attributes.size() / 16);
  space->as_namespace()->set(node.target_attribute, std::move(value));
}

Run::Flow Run::loop(const Node& node) {
  List items = items_of(*this, evaluate(*node.children[0]));
  const std::shared_ptr<Scope> outer = scope_;
  const auto enter = [&](const Value& value) {
    scope_ = std::make_shared<Scope>();
    scope_->parent = outer;
    bind(node.targets, value);
  };
  if (const NodePtr& condition = node.children[3]) {
    List kept;
    for (Value& value : items) {
      spend(4);
      enter(value);
      if (evaluate(*condition).truth()) kept.push_back(std::move(value));
    }
    scope_ = outer;
    items = std::move(kept);
  }
  if (items.empty()) return node.children[2] ? execute(*node.children[2]) : Flow::next;
  const auto count = static_cast<int64_t>(items.size());
  for (int64_t i = 0; i < count; ++i) {
    spend(16);
    const auto at = static_cast<size_t>(i);
    enter(items[at]);
    const auto state = std::make_shared<NamespaceObject>();
    state->attributes = {{"index", Value(i + 1)},
                         {"index0", Value(i)},
                         {"first", Value(i == 0)},
                         {"last", Value(i + 1 == count)},
                         {"length", Value(count)},
                         {"revindex", Value(count - i)},
                         {"revindex0", Value(count - i - 1)},
                         {"depth", Value(int64_t{1})},
                         {"depth0", Value(int64_t{0})},
                         {"cycle", Value::callable({"cycle", std::make_shared<const Value>(i)})}};
    if (i > 0) state->attributes.emplace_back("previtem", items[at - 1]);
    if (i + 1 < count) state->attributes.emplace_back("nextitem", items[at + 1]);
    scope_->names["loop"] = Value::space(state);
    if (execute(*node.children[1]) == Flow::leave_loop) break;
  }
  scope_ = outer;
  return Flow::next;
}

std::string Run::captured(const Node& body) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  execute(body);
  out_ = outer;
  charge(text.size());
  return text;
}

Value Run::evaluate(const Node& node) {
  const Node* const outer = std::exchange(current_, &node);  // stays after an error
  spend(1);
  const Budget::Level level(budget_);
  Value value = evaluate_one(node);
  current_ = outer;
  return value;
}

Value Run::evaluate_one(const Node& node) {
  const auto operand = [&](size_t i) { return evaluate(*node.children[i]); };
  switch (node.kind) {
    case NodeKind::literal:
      return node.value.is_undefined() && filtered_ ? *filtered_ : node.value;
    case NodeKind::name:
      return name_of(node);
    case NodeKind::attribute:
      return attribute(operand(0), node.text);
    case NodeKind::item: {
      const Value of = operand(0);
      return item(of, operand(1));
    }
    case NodeKind::slice:
      return slice(node);
    case NodeKind::call:
      return call(node);
    case NodeKind::filter: {
      const Value value = operand(0);
      return apply_filter(*this, node.text, value, arguments(node));
    }
    case NodeKind::test: {
      const Value value = operand(0);
      return Value(apply_test(*this, node.text, value, arguments(node)));
    }
    case NodeKind::list: {
      List items;
      charge(node.children.size() * sizeof(Value));
      for (const NodePtr& child : node.children) items.push_back(evaluate(*child));
      return Value::list(std::move(items));
    }
    case NodeKind::map:
      return map(node);
    case NodeKind::unary:
      return unary(node);
    case NodeKind::binary:
      return binary(node);
    case NodeKind::compare:
      return compare(node);
    case NodeKind::both: {
      Value left = operand(0);
      return left.truth() ? operand(1) : left;
    }
    case NodeKind::either: {
      Value left = operand(0);
      return left.truth() ? left : operand(1);
    }
    default:
      if (operand(0).truth()) return operand(1);
      return node.children[2] ? operand(2) : Value::undefined("the value without 'else'");
  }
}

Value Run::name_of(const Node& node) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get(), spend(1))
    if (const auto at = scope->names.find(node.text); at != scope->names.end()) return at->second;
  if (has_function(node.text)) return Value::callable({node.text, nullptr});
  return Value::undefined(node.text);
}

Value Run::attribute(const Value& of, const std::string& name) {
  expect_defined(of);
  if (NamespaceObject* const space = of.as_namespace()) {
    spend(space->attributes.size() / 16);
    const Value* const found = space->find(name);
    return found ? *found : Value::undefined(name);
  }
  if (has_method(*this, of, name)) return Value::callable({name, std::make_shared<const Value>(of)});
  if (!of.is_map()) return Value::undefined(name);
  const Value* const found = of.find(budget_, name);
  return found ? *found : Value::undefined(name);
}

Value Run::item(const Value& of, const Value& key) {
  expect_defined(of);
  if (of.is_map()) {
    if (const Value* const found = of.find(budget_, key)) return *found;
  }
  if ((of.is_list() || of.is_text()) && key.is_number() && !key.is_real()) {
    int64_t index = key.integer();
    if (of.is_text()) budget_.scan(of.text().size());
    const auto size = static_cast<int64_t>(of.is_list() ? of.items().size() : characters_in(of.text()));
    if (index < 0) index += size;
    if (index < 0 || index >= size) return Value::undefined(std::to_string(key.integer()));
    if (of.is_list()) return of.items()[static_cast<size_t>(index)];
    return Value(std::string(characters(of.text(), index, index + 1)));
  }
  if (key.is_text()) return attribute(of, key.text());
  return Value::undefined(key.is_number() ? text(key) : key.kind());
}

Value Run::slice(const Node& node) {
  const Value of = evaluate(*node.children[0]);
  expect_defined(of);
  if (!of.is_list() && !of.is_text()) fail_run(fmt::format("{} cannot be divided by [:]", of.kind()));
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (!node.children[i + 1]) continue;
    const Value value = evaluate(*node.children[i + 1]);
    if (value.is_none()) continue;
    if (!value.is_number() || value.is_real()) fail_run(fmt::format("{} is not a place in a list", value.kind()));
    bounds[i] = value.integer();
  }
  const int64_t step = bounds[2].value_or(1);
  if (step == 0) fail_run("the step of [::] is 0");
  if (of.is_text()) budget_.scan(of.text().size());
  const auto size = static_cast<int64_t>(of.is_list() ? of.items().size() : characters_in(of.text()));
  const auto bound = [&](std::optional<int64_t> given, int64_t otherwise) {
    if (!given) return otherwise;
    const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
    return std::clamp(*given < 0 ? *given + size : *given, least, most);
  };
  const int64_t first = bound(bounds[0], step > 0 ? 0 : size - 1), last = bound(bounds[1], step > 0 ? size : -1);
  if (of.is_text() && step == 1) {
    const std::string_view part = characters(of.text(), first, std::max(first, last));
    charge(part.size());
    return Value(part);
  }
  const List all = items_of(*this, of);
  List chosen;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    chosen.push_back(all[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (of.is_list()) return Value::list(std::move(chosen));
  std::string text;
  for (const Value& character : chosen) text += character.text();
  return Value(std::move(text));
}

Value Run::map(const Node& node) {
  Map entries;
  charge(node.children.size() * sizeof(Value));
  for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
    Value key = evaluate(*node.children[i]);
    if (!key.is_text() && !key.is_number() && !key.is_none())
      fail_run(fmt::format("{} is not a key of a map", key.kind()));
    Value value = evaluate(*node.children[i + 1]);
    spend(entries.size() / 8);
    const auto same =
        std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return equal(budget_, e.first, key); });
    if (same == entries.end())
      entries.emplace_back(std::move(key), std::move(value));
    else
      same->second = std::move(value);
  }
  return Value::map(std::move(entries));
}

Value Run::unary(const Node& node) {
  const Value value = evaluate(*node.children[0]);
  if (node.text == "not") return Value(!value.truth());
  expect_defined(value);
  if (!value.is_number()) fail_run(fmt::format("'{}' needs a number, not {}", node.text, value.kind()));
  if (node.text == "+") return value.is_bool() ? Value(value.integer()) : value;
  return value.is_real() ? Value(-value.real()) : of_numbers("-", Value(int64_t{0}), value);
}

Value Run::binary(const Node& node) {
  const Value a = evaluate(*node.children[0]), b = evaluate(*node.children[1]);
  if (node.text == "~") {
    std::string joined = text(a);
    return Value(std::move(joined += text(b)));
  }
  expect_defined(a);
  expect_defined(b);
  return arithmetic(node.text, a, b);
}

Value Run::arithmetic(const std::string& sign, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return of_numbers(sign, a, b);
  if (sign == "+" && ((a.is_text() && b.is_text()) || (a.is_list() && b.is_list()))) {
    if (a.is_text()) {
      charge(a.text().size() + b.text().size());
      return Value(a.text() + b.text());
    }
    charge((a.items().size() + b.items().size()) * sizeof(Value));
    List all = a.items();
    all.insert(all.end(), b.items().begin(), b.items().end());
    return Value::list(std::move(all));
  }
  const Value &some = a.is_number() ? b : a, &times = a.is_number() ? a : b;
  if (sign == "*" && (some.is_text() || some.is_list()) && times.is_number() && !times.is_real())
    return repeated(some, static_cast<uint64_t>(std::max<int64_t>(times.integer(), 0)));
  fail_run(fmt::format("'{}' is not defined for {} and {}", sign, a.kind(), b.kind()));
}

Value Run::repeated(const Value& value, uint64_t count) {
  const uint64_t size = value.is_text() ? value.text().size() : value.items().size() * sizeof(Value);
  if (size == 0) count = 0;
  if (size > 0 && count > budget_.bytes_left() / size) budget_.fail_bytes();
  charge(count * size);
  spend(count / 8);
  std::string text;
  List items;
  for (uint64_t i = 0; i < count; ++i) {
    if (value.is_text())
      text += value.text();
    else
      items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is_text() ? Value(std::move(text)) : Value::list(std::move(items));
}

bool Run::contains(const Value& all, const Value& one) {
  if (all.is_text()) {
    if (!one.is_text()) fail_run(fmt::format("'in' a string needs a string, not {}", one.kind()));
    if (one.text().empty()) return true;
    return Needle(budget_, one.text()).find(all.text()) != std::string_view::npos;
  }
  if (all.is_map()) return all.find(budget_, one) != nullptr;
  if (all.is_undefined()) return false;
  if (!all.is_list()) fail_run(fmt::format("{} has no items to look for", all.kind()));
  spend(all.items().size() / 8);
  return std::any_of(all.items().begin(), all.items().end(),
                     [&](const Value& item) { return equal(budget_, item, one); });
}

Value Run::compare(const Node& node) {
  Value left = evaluate(*node.children[0]);
  for (size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.children[i + 1]);
    const std::string& sign = node.operators[i];
    bool holds = false;
    if (sign == "in" || sign == "not in") {
      holds = contains(right, left) == (sign == "in");
    } else if (sign == "==" || sign == "!=") {
      holds = equal(budget_, left, right) == (sign == "==");
    } else {
      expect_defined(left);
      expect_defined(right);
      const int place = order(budget_, left, right);
      holds = sign == "<" ? place < 0 : sign == ">" ? place > 0 : sign == "<=" ? place <= 0 : place >= 0;
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

CallArguments Run::arguments(const Node& node) {
  CallArguments all;
  for (const Parameter& parameter : node.arguments) {
    Value value = evaluate(*parameter.value);
    if (parameter.name.empty())
      all.values.push_back(std::move(value));
    else
      all.named.emplace_back(parameter.name, std::move(value));
  }
  return all;
}

Value Run::call(const Node& node) {
  const Value function = evaluate(*node.children[0]);
  const CallArguments given = arguments(node);
  if (const Macro* const macro = function.as_macro()) return call_macro(*macro, given);
  expect_defined(function);
  const Callable* const callable = function.as_callable();
  if (!callable) fail_run(fmt::format("{} cannot be called", function.kind()));
  return call_function(*this, *callable, given);
}

Value Run::call_macro(const Macro& macro, const CallArguments& given) {
  const Node& node = *macro.node;
  const std::shared_ptr<Scope> around = macro.scope.lock();
  if (!around) fail_run(fmt::format("the macro '{}' is used outside its block", node.text));
  if (given.values.size() > node.arguments.size())
    fail_run(fmt::format("the macro '{}' takes {} at most", node.text, quantity(node.arguments.size(), "value")));
  for (const auto& [name, value] : given.named)
    if (std::none_of(node.arguments.begin(), node.arguments.end(),
                     [&, &wanted = name](const auto& p) { return p.name == wanted; }))
      fail_run(fmt::format("the macro '{}' takes no value '{}'", node.text, name));
  spend(4 + 2 * node.arguments.size() + given.named.size() * node.arguments.size() / 8);
  const std::shared_ptr<Scope> caller = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->parent = around;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const Parameter& parameter = node.arguments[i];
    const Value* const value = given.find(i, parameter.name);
    scope_->names[parameter.name] = value             ? *value
                                    : parameter.value ? evaluate(*parameter.value)
                                                      : Value::undefined(parameter.name);
  }
  Value text(captured(*node.children[0]));
  scope_ = caller;
  return text;
}

}  // namespace harmonics::engine::jinja
