// Filters and tests of chat templates.
#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/language/template_run.hpp"
#include "engine/language/template_text.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::jinja {

namespace {

using Given = const CallArguments&;

[[noreturn]] void fail_filter(const std::string& what) { throw Error(ErrorKind::Usage, what); }

const std::string& text_in(const Value* value, const char* what) {
  if (!value->is_text()) fail_filter(fmt::format("{} must be a string, not {}", what, value->kind()));
  return value->text();
}
int64_t integer_in(const Value* value, int64_t otherwise, const char* what) {
  if (!value) return otherwise;
  if (!value->is_number() || value->is_real())
    fail_filter(fmt::format("{} must be a whole number, not {}", what, value->kind()));
  return value->integer();
}
bool truth_in(const Value* value) { return value && value->truth(); }
// Returns a width to pad to.
int64_t width_in(const Value* value, int64_t otherwise) {
  const int64_t width = integer_in(value, otherwise, "the width");
  if (width < 0 || width > 64) fail_filter(fmt::format("the width {} is not within 0 and 64", width));
  return width;
}

// Returns the value at a path such as "function.name", or at the index 0.
Value at_path(Run& run, const Value& from, const Value& path) {
  if (!path.is_text()) return run.item(from, path);
  Value value = from;
  for (const std::string_view part : split_at(path.text(), Needle(run.budget(), "."), -1, false)) {
    run.spend(2);
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = !part.empty() && read.ec == std::errc() && read.ptr == part.data() + part.size();
    value = number ? run.item(value, Value(index)) : run.item(value, Value(part));
  }
  return value;
}

// A copy that functions of texts may read byte by byte.
std::string scanned(Run& run, const Value& value) {
  std::string text = run.text(value);
  run.budget().scan(text.size());
  return text;
}

Value folded(Run& run, const Value& value) { return value.is_text() ? Value(lower_case(scanned(run, value))) : value; }

Value filter_default(Run&, const Value& value, Given given) {
  given.expect("default", {"default_value", "boolean"});
  const bool missing = value.is_undefined() || (truth_in(given.find(1, "boolean")) && !value.truth());
  if (!missing) return value;
  const Value* const other = given.find(0, "default_value");
  return other ? *other : Value("");
}

Value filter_join(Run& run, const Value& value, Given given) {
  given.expect("join", {"d", "attribute"});
  const Value *between = given.find(0, "d"), *attribute = given.find(1, "attribute");
  const List items = items_of(run, value);
  const std::string separator = between ? run.text(*between) : "";
  run.charge(separator.size() * items.size());
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    run.spend(1);
    if (i > 0) out += separator;
    out += run.text(attribute ? at_path(run, items[i], *attribute) : items[i]);
  }
  return Value(std::move(out));
}

Value filter_json(Run& run, const Value& value, Given given) {
  given.expect("tojson", {"indent", "ensure_ascii", "separators", "sort_keys"});
  JsonStyle style;
  if (const Value* indent = given.find(0, "indent"); indent && !indent->is_none())
    style.indent = static_cast<int>(width_in(indent, -1));
  if (truth_in(given.find(1, "ensure_ascii"))) fail_filter("'tojson' does not support ensure_ascii");
  if (const Value* separators = given.find(2, "separators"); separators && !separators->is_none()) {
    const List both = items_of(run, *separators);
    if (both.size() != 2) fail_filter("'separators' must be two strings");
    style.item = text_in(&both[0], "a separator");
    style.key = text_in(&both[1], "a separator");
    if (style.item.size() + style.key.size() > 64) fail_filter("the separators are too long");
  }
  style.sorted = truth_in(given.find(3, "sort_keys"));
  return Value(json_of(run.budget(), value, style));
}

Value filter_length(Run& run, const Value& value, Given given) {
  given.expect("length", {});
  if (value.is_text()) {
    run.budget().scan(value.text().size());
    return Value(static_cast<int64_t>(characters_in(value.text())));
  }
  if (value.is_map()) return Value(static_cast<int64_t>(value.entries().size()));
  if (value.is_list()) return Value(static_cast<int64_t>(value.items().size()));
  return Value(static_cast<int64_t>(items_of(run, value).size()));
}

Value filter_trim(Run& run, const Value& value, Given given) {
  given.expect("trim", {"chars"});
  const Value* const which = given.find(0, "chars");
  const std::string text = scanned(run, value);
  if (!which || which->is_none()) return Value(stripped(text, true, true));
  const CharacterSet characters(run.budget(), text_in(which, "the characters"));
  return Value(stripped(text, true, true, &characters));
}

Value filter_case(Run& run, const Value& value, Given given, const char* name) {
  given.expect(name, {});
  const std::string text = scanned(run, value);
  switch (name[0]) {
    case 'u':
      return Value(upper_case(text));
    case 'l':
      return Value(lower_case(text));
    case 'c':
      return Value(capitalised(text));
    default:
      return Value(title_case(text, false));
  }
}

Value filter_end(Run& run, const Value& value, Given given, bool last) {
  given.expect(last ? "last" : "first", {});
  if (value.is_list() && !value.items().empty()) return last ? value.items().back() : value.items().front();
  if (value.is_text() && !value.text().empty()) {
    run.budget().scan(value.text().size() * 2);
    const int64_t at = last ? static_cast<int64_t>(characters_in(value.text())) - 1 : 0;
    return Value(characters(value.text(), at, at + 1));
  }
  const List items = items_of(run, value);
  if (items.empty()) return Value::undefined(last ? "the last item" : "the first item");
  return last ? items.back() : items.front();
}

Value pairs_of(Run& run, const Value& value) {
  if (value.is_undefined()) return Value::list({});
  if (!value.is_map()) fail_filter(fmt::format("{} has no keys with values", value.kind()));
  run.charge(value.entries().size() * 3 * sizeof(Value));
  run.spend(value.entries().size());
  List pairs;
  for (const auto& [key, item] : value.entries()) pairs.push_back(Value::list({key, item}));
  return Value::list(std::move(pairs));
}

// The second values of pairs, in the order of the first ones. Equal ones keep their order, unless they are turned over.
Value sorted(Run& run, std::vector<std::pair<Value, Value>> keyed, bool down, bool turned) {
  const auto before = [&](const auto& a, const auto& b) {
    run.spend(1);
    return order(run.budget(), a.first, b.first) < 0;
  };
  if (down && !turned)
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) { return before(b, a); });
  else
    std::stable_sort(keyed.begin(), keyed.end(), before);
  if (down && turned) std::reverse(keyed.begin(), keyed.end());
  List items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return Value::list(std::move(items));
}

Value filter_items(Run& run, const Value& value, Given given) {
  given.expect("items", {});
  return pairs_of(run, value);
}

Value filter_dictsort(Run& run, const Value& value, Given given) {
  given.expect("dictsort", {"case_sensitive", "by", "reverse"});
  const Value *exact = given.find(0, "case_sensitive"), *by = given.find(1, "by");
  const size_t which = by && by->is_text() && by->text() == "value";
  std::vector<std::pair<Value, Value>> keyed;
  const Value pairs = pairs_of(run, value);
  for (const Value& pair : pairs.items())
    keyed.emplace_back(truth_in(exact) ? pair.items()[which] : folded(run, pair.items()[which]), pair);
  return sorted(run, std::move(keyed), truth_in(given.find(2, "reverse")), true);
}

// Returns the key by which an item is compared.
Value sort_key(Run& run, const Value& item, const Value* attribute, const Value* exact) {
  const Value key = attribute && !attribute->is_none() ? at_path(run, item, *attribute) : item;
  return truth_in(exact) ? key : folded(run, key);
}

Value filter_sort(Run& run, const Value& value, Given given) {
  given.expect("sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items_of(run, value)) {
    run.spend(2);
    keyed.emplace_back(sort_key(run, item, given.find(2, "attribute"), given.find(1, "case_sensitive")), item);
  }
  return sorted(run, std::move(keyed), truth_in(given.find(0, "reverse")), false);
}

Value filter_unique(Run& run, const Value& value, Given given) {
  given.expect("unique", {"case_sensitive", "attribute"});
  List keys, kept;
  for (const Value& item : items_of(run, value)) {
    run.spend(1 + keys.size());
    Value key = sort_key(run, item, given.find(1, "attribute"), given.find(0, "case_sensitive"));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return equal(run.budget(), k, key); })) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return Value::list(std::move(kept));
}

Value filter_extreme(Run& run, const Value& value, Given given, bool largest) {
  given.expect(largest ? "max" : "min", {"case_sensitive", "attribute"});
  Value best = Value::undefined("an item"), best_key;
  for (const Value& item : items_of(run, value)) {
    Value key = sort_key(run, item, given.find(1, "attribute"), given.find(0, "case_sensitive"));
    run.spend(1);
    const int place = best_key.is_undefined() ? 0 : order(run.budget(), key, best_key);
    if (!best_key.is_undefined() && (largest ? place <= 0 : place >= 0)) continue;
    best = item;
    best_key = std::move(key);
  }
  return best;
}

Value filter_sum(Run& run, const Value& value, Given given) {
  given.expect("sum", {"attribute", "start"});
  const Value *attribute = given.find(0, "attribute"), *start = given.find(1, "start");
  if (start && !start->is_number()) fail_filter(fmt::format("{} begins no sum", start->kind()));
  double sum = start ? start->real() : 0;
  bool real = start && start->is_real();
  for (const Value& item : items_of(run, value)) {
    const Value part = attribute && !attribute->is_none() ? at_path(run, item, *attribute) : item;
    if (!part.is_number()) fail_filter(fmt::format("{} has no sum", part.kind()));
    real = real || part.is_real();
    sum += part.real();
  }
  if (!real && std::abs(sum) < 9e15) return Value(static_cast<int64_t>(sum));
  return Value(sum);
}

Value filter_reverse(Run& run, const Value& value, Given given) {
  given.expect("reverse", {});
  List items = items_of(run, value);
  std::reverse(items.begin(), items.end());
  if (!value.is_text()) return Value::list(std::move(items));
  std::string text;
  for (const Value& character : items) text += character.text();
  return Value(std::move(text));
}

std::optional<double> number_in(Run& run, const Value& value) {
  if (value.is_number()) return value.real();
  if (!value.is_text()) return std::nullopt;
  run.budget().scan(value.text().size());
  const std::string_view text = stripped(value.text(), true, true);
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

Value filter_int(Run& run, const Value& value, Given given) {
  given.expect("int", {"default", "base"});
  if (value.is_number() && !value.is_real()) return Value(value.integer());
  const std::optional<double> number = number_in(run, value);
  if (number && std::abs(*number) < 9.2e18) return Value(static_cast<int64_t>(*number));
  const Value* const other = given.find(0, "default");
  return other ? *other : Value(int64_t{0});
}

Value filter_float(Run& run, const Value& value, Given given) {
  given.expect("float", {"default"});
  if (const std::optional<double> number = number_in(run, value)) return Value(*number);
  const Value* const other = given.find(0, "default");
  return other ? *other : Value(0.0);
}

Value filter_abs(Run&, const Value& value, Given given) {
  given.expect("abs", {});
  if (!value.is_number()) fail_filter(fmt::format("'abs' needs a number, not {}", value.kind()));
  if (value.is_real()) return Value(std::abs(value.real()));
  if (value.integer() == INT64_MIN) fail_filter("a whole number overflows 64 bits");
  return Value(std::abs(value.integer()));
}

Value filter_round(Run& run, const Value& value, Given given) {
  given.expect("round", {"precision", "method"});
  if (!value.is_number()) fail_filter(fmt::format("'round' needs a number, not {}", value.kind()));
  const auto digits =
      static_cast<double>(std::clamp<int64_t>(integer_in(given.find(0, "precision"), 0, "the precision"), -15, 15));
  const Value* const method = given.find(1, "method");
  const double scale = std::pow(10.0, digits), scaled = value.real() * scale;
  const std::string how = method ? run.text(*method) : "common";
  const double rounded = how == "ceil"    ? std::ceil(scaled)
                         : how == "floor" ? std::floor(scaled)
                                          : std::nearbyint(scaled);
  return Value(rounded / scale);
}

Value filter_replace(Run& run, const Value& value, Given given) {
  given.expect("replace", {"old", "new", "count"});
  if (!given.find(0, "old") || !given.find(1, "new")) fail_filter("'replace' needs two strings");
  CallArguments texts;
  texts.values = {Value(run.text(*given.find(0, "old"))), Value(run.text(*given.find(1, "new")))};
  if (const Value* count = given.find(2, "count"); count && !count->is_none()) texts.values.push_back(*count);
  return call_function(run, {"replace", std::make_shared<const Value>(run.text(value))}, texts);
}

Value filter_indent(Run& run, const Value& value, Given given) {
  given.expect("indent", {"width", "first", "blank"});
  const Value* const width = given.find(0, "width");
  const std::string space = width && width->is_text() ? width->text().substr(0, 64)
                                                      : std::string(static_cast<size_t>(width_in(width, 4)), ' ');
  const std::string text = run.text(value);
  const Needle line_end(run.budget(), "\n");
  run.charge(text.size() + space.size() * (count_of(text, line_end) + 1));
  const bool blank = truth_in(given.find(2, "blank"));
  std::string out = truth_in(given.find(1, "first")) ? space : "";
  const std::vector<std::string_view> lines = split_at(text, line_end, -1, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += space;
    out += lines[i];
  }
  return Value(std::move(out));
}

Value filter_escape(Run& run, const Value& value, Given given) {
  given.expect("escape", {});
  const std::string text = scanned(run, value);
  run.charge(text.size() * 5);
  std::string out;
  for (const char c : text) {
    const char* const name = c == '&'    ? "&amp;"
                             : c == '<'  ? "&lt;"
                             : c == '>'  ? "&gt;"
                             : c == '"'  ? "&#34;"
                             : c == '\'' ? "&#39;"
                                         : nullptr;
    if (name)
      out += name;
    else
      out += c;
  }
  return Value(std::move(out));
}

// map('filter', values...) or map(attribute='name', default=value)
Value filter_map(Run& run, const Value& value, Given given) {
  CallArguments rest;
  const Value* const attribute = given.find(given.values.size(), "attribute");
  if (!attribute) {
    if (given.values.empty()) fail_filter("'map' needs a filter or attribute=");
    rest.values.assign(given.values.begin() + 1, given.values.end());
    rest.named = given.named;
  }
  const Value* const otherwise = given.find(given.values.size(), "default");
  List out;
  run.spend(given.values.size() / 8);
  for (const Value& item : items_of(run, value)) {
    run.spend(2 + rest.named.size() / 4);
    Value made = attribute ? at_path(run, item, *attribute)
                           : apply_filter(run, text_in(&given.values[0], "the filter"), item, rest);
    if (made.is_undefined() && attribute && otherwise) made = *otherwise;
    out.push_back(std::move(made));
  }
  return Value::list(std::move(out));
}

// select, reject, selectattr, rejectattr. Without a test, selects by truth.
Value filter_select(Run& run, const Value& value, Given given, bool by_attribute, bool wanted) {
  const size_t first = by_attribute;
  if (given.values.size() < first) fail_filter("'selectattr' needs the attribute");
  CallArguments rest;
  if (given.values.size() > first)
    rest.values.assign(given.values.begin() + static_cast<std::ptrdiff_t>(first) + 1, given.values.end());
  rest.named = given.named;
  List out;
  for (const Value& item : items_of(run, value)) {
    run.spend(2 + rest.named.size() / 4);
    const Value judged = by_attribute ? at_path(run, item, given.values[0]) : item;
    const bool holds = given.values.size() > first
                           ? apply_test(run, text_in(&given.values[first], "the test"), judged, rest)
                           : judged.truth();
    if (holds == wanted) out.push_back(item);
  }
  return Value::list(std::move(out));
}

struct FilterRow {
  std::string_view name;
  Value (*apply)(Run&, const Value&, Given);
};

constexpr FilterRow kFilters[] = {
    {"default", filter_default},
    {"d", filter_default},
    {"join", filter_join},
    {"tojson", filter_json},
    {"length", filter_length},
    {"count", filter_length},
    {"trim", filter_trim},
    {"upper", [](Run& r, const Value& v, Given g) { return filter_case(r, v, g, "upper"); }},
    {"lower", [](Run& r, const Value& v, Given g) { return filter_case(r, v, g, "lower"); }},
    {"capitalize", [](Run& r, const Value& v, Given g) { return filter_case(r, v, g, "capitalize"); }},
    {"title", [](Run& r, const Value& v, Given g) { return filter_case(r, v, g, "title"); }},
    {"first", [](Run& r, const Value& v, Given g) { return filter_end(r, v, g, false); }},
    {"last", [](Run& r, const Value& v, Given g) { return filter_end(r, v, g, true); }},
    {"items", filter_items},
    {"dictsort", filter_dictsort},
    {"list", [](Run& r, const Value& v, Given) { return Value::list(items_of(r, v)); }},
    {"string", [](Run& r, const Value& v, Given) { return v.is_text() ? v : Value(r.text(v)); }},
    {"safe", [](Run&, const Value& v, Given) { return v; }},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"sort", filter_sort},
    {"unique", filter_unique},
    {"min", [](Run& r, const Value& v, Given g) { return filter_extreme(r, v, g, false); }},
    {"max", [](Run& r, const Value& v, Given g) { return filter_extreme(r, v, g, true); }},
    {"sum", filter_sum},
    {"reverse", filter_reverse},
    {"int", filter_int},
    {"float", filter_float},
    {"abs", filter_abs},
    {"round", filter_round},
    {"replace", filter_replace},
    {"indent", filter_indent},
    {"map", filter_map},
    {"select", [](Run& r, const Value& v, Given g) { return filter_select(r, v, g, false, true); }},
    {"reject", [](Run& r, const Value& v, Given g) { return filter_select(r, v, g, false, false); }},
    {"selectattr", [](Run& r, const Value& v, Given g) { return filter_select(r, v, g, true, true); }},
    {"rejectattr", [](Run& r, const Value& v, Given g) { return filter_select(r, v, g, true, false); }},
};

struct KindTest {
  std::string_view name;
  bool (*holds)(const Value&);
};

constexpr KindTest kKindTests[] = {
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"string", [](const Value& v) { return v.is_text(); }},
    {"boolean", [](const Value& v) { return v.is_bool(); }},
    {"integer", [](const Value& v) { return v.is_integer(); }},
    {"float", [](const Value& v) { return v.is_real(); }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"mapping", [](const Value& v) { return v.is_map(); }},
    {"iterable", [](const Value& v) { return v.is_text() || v.is_list() || v.is_map() || v.is_undefined(); }},
    {"sequence", [](const Value& v) { return v.is_text() || v.is_list() || v.is_map() || v.is_undefined(); }},
    {"callable", [](const Value& v) { return v.is_callable(); }},
    {"true", [](const Value& v) { return v.is_bool() && v.truth(); }},
    {"false", [](const Value& v) { return v.is_bool() && !v.truth(); }},
};

// Returns whether a string has letters of this case only, and at least one.
bool has_case(Run& run, const Value& value, bool upper) {
  const std::string text = scanned(run, value);
  const std::string same = upper ? upper_case(text) : lower_case(text);
  const std::string other = upper ? lower_case(text) : upper_case(text);
  return same == text && other != text;
}

// Returns -1 if there is no such comparison.
int comparison_test(Run& run, const std::string& name, const Value& value, const Value& other) {
  if (name == "eq" || name == "equalto" || name == "sameas") return equal(run.budget(), value, other);
  if (name == "ne") return !equal(run.budget(), value, other);
  if (name == "lt" || name == "lessthan") return order(run.budget(), value, other) < 0;
  if (name == "gt" || name == "greaterthan") return order(run.budget(), value, other) > 0;
  if (name == "le") return order(run.budget(), value, other) <= 0;
  if (name == "ge") return order(run.budget(), value, other) >= 0;
  if (name == "in") return run.contains(other, value);
  if (name == "divisibleby") {
    const int64_t by = integer_in(&other, 0, "the divisor");
    if (by == 0) fail_filter("a number is divided by 0");
    return by == -1 || integer_in(&value, 0, "the number") % by == 0;
  }
  return -1;
}

}  // namespace

Value apply_filter(Run& run, const std::string& name, const Value& value, const CallArguments& arguments) {
  run.spend(1);
  const Budget::Level level(run.budget());  // 'map' may name 'map'
  for (const FilterRow& row : kFilters)
    if (row.name == name) return row.apply(run, value, arguments);
  fail_filter(fmt::format("there is no filter '{}'", printable(name)));
}

bool apply_test(Run& run, const std::string& name, const Value& value, const CallArguments& arguments) {
  for (const KindTest& test : kKindTests)
    if (test.name == name) {
      arguments.expect(name, {});
      return test.holds(value);
    }
  if (name == "odd" || name == "even") return (integer_in(&value, 0, "the number") % 2 != 0) == (name == "odd");
  if (name == "lower" || name == "upper") {
    arguments.expect(name, {});
    return has_case(run, value, name == "upper");
  }
  if (arguments.values.size() == 1)
    if (const int holds = comparison_test(run, name, value, arguments.values[0]); holds >= 0) return holds != 0;
  fail_filter(
      fmt::format("there is no test '{}' with {}", printable(name), quantity(arguments.values.size(), "value")));
}

}  // namespace harmonics::engine::jinja
