// The functions of chat templates, and the methods of their values.
#include <algorithm>

#include <fmt/core.h>

#include "engine/language/template_run.hpp"
#include "engine/language/template_text.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::jinja {

namespace {

using Given = const CallArguments&;

constexpr std::string_view kFunctions[] = {"range", "dict", "namespace", "raise_exception", "strftime_now"};
constexpr std::string_view kTextMethods[] = {
    "strip",   "lstrip", "rstrip", "split",        "rsplit",       "splitlines", "startswith", "endswith",   "replace",
    "upper",   "lower",  "title",  "find",         "rfind",        "count",      "join",       "capitalize", "isdigit",
    "isspace", "index",  "format", "removeprefix", "removesuffix", "isalpha",    "isalnum"};
constexpr std::string_view kMapMethods[] = {"get", "items", "keys", "values", "copy"};
constexpr std::string_view kListMethods[] = {"index", "count"};
// Methods that would change a value, which templates cannot.
constexpr std::string_view kChanges[] = {"append", "extend", "insert",     "remove",  "pop",    "clear",
                                         "sort",   "update", "setdefault", "popitem", "reverse"};

[[noreturn]] void fail_call(const std::string& what) { throw Error(ErrorKind::Usage, what); }

template <size_t n>
bool is_among(const std::string_view (&names)[n], std::string_view name) {
  return std::find(names, names + n, name) != names + n;
}

const Value& needed(Given given, size_t place, const char* name, const std::string& method) {
  const Value* const value = given.find(place, name);
  if (!value) fail_call(fmt::format("'{}' needs a value", method));
  return *value;
}
const std::string& text_needed(Given given, size_t place, const char* name, const std::string& method) {
  const Value& value = needed(given, place, name, method);
  if (!value.is_text()) fail_call(fmt::format("'{}' needs a string, not {}", method, value.kind()));
  return value.text();
}
int64_t integer_or(const Value* value, int64_t otherwise, const std::string& method) {
  if (!value || value->is_none()) return otherwise;
  if (!value->is_number() || value->is_real())
    fail_call(fmt::format("'{}' needs a whole number, not {}", method, value->kind()));
  return value->integer();
}

Value list_of(Run& run, const std::vector<std::string_view>& parts) {
  run.charge(parts.size() * 2 * sizeof(Value));
  for (const std::string_view part : parts) run.charge(part.size());
  List items;
  for (const std::string_view part : parts) items.emplace_back(part);
  return Value::list(std::move(items));
}

Value split_method(Run& run, const std::string& name, const std::string& text, Given given) {
  given.expect(name, {"sep", "maxsplit"});
  const Value* const separator = given.find(0, "sep");
  const int64_t most = integer_or(given.find(1, "maxsplit"), -1, name);
  const bool from_right = name == "rsplit";
  if (!separator || separator->is_none()) {
    run.budget().scan(text.size());
    return list_of(run, split_words(text, most, from_right));
  }
  if (!separator->is_text() || separator->text().empty())
    fail_call(fmt::format("'{}' needs a string to split at", name));
  return list_of(run, split_at(text, Needle(run.budget(), separator->text(), from_right), most, from_right));
}

Value strip_method(Run& run, const std::string& name, const std::string& text, Given given) {
  given.expect(name, {"chars"});
  const Value* const which = given.find(0, "chars");
  run.charge(text.size());
  run.budget().scan(text.size());
  if (!which || which->is_none()) return Value(stripped(text, name != "rstrip", name != "lstrip"));
  const CharacterSet characters(run.budget(), text_needed(given, 0, "chars", name));
  return Value(stripped(text, name != "rstrip", name != "lstrip", &characters));
}

Value replace_method(Run& run, const std::string& text, Given given) {
  given.expect("replace", {"old", "new", "count"});
  const std::string &from = text_needed(given, 0, "old", "replace"), &to = text_needed(given, 1, "new", "replace");
  const int64_t most = integer_or(given.find(2, "count"), -1, "replace");
  const auto times_of = [&](uint64_t times) { return most < 0 ? times : std::min(times, static_cast<uint64_t>(most)); };
  std::string out;
  if (from.empty()) {
    run.spend(text.size() / 4);
    const uint64_t times = times_of(characters_in(text) + 1);
    run.charge(text.size() + times * to.size());
    uint64_t done = 0;
    for (size_t at = 0; at <= text.size();) {
      if (done < times) ++done, out += to;
      if (at == text.size()) break;
      const size_t length = decode_utf8(text, at).length;
      out.append(text, at, length);
      at += length;
    }
    return Value(std::move(out));
  }
  const Needle needle(run.budget(), from);
  const uint64_t times = times_of(count_of(text, needle));
  run.charge(text.size() + times * to.size());
  size_t at = 0;
  for (uint64_t done = 0; done < times; ++done) {
    const size_t found = needle.find(text, at);
    out.append(text, at, found - at);
    out += to;
    at = found + from.size();
  }
  return Value(std::move(out.append(text, at)));
}

// startswith and endswith take a string or a list of strings.
Value affix_method(Run& run, const std::string& name, const std::string& text, Given given) {
  given.expect(name, {"prefix"});
  const Value& affix = needed(given, 0, "prefix", name);
  const auto holds = [&](const Value& one) {
    if (!one.is_text()) fail_call(fmt::format("'{}' needs a string, not {}", name, one.kind()));
    run.spend(one.text().size() / 64);
    return name == "startswith" ? text.starts_with(one.text()) : text.ends_with(one.text());
  };
  if (affix.is_text()) return Value(holds(affix));
  const List all = items_of(run, affix);
  return Value(std::any_of(all.begin(), all.end(), holds));
}

Value find_method(Run& run, const std::string& name, const std::string& text, Given given) {
  given.expect(name, {"sub"});
  const std::string& part = text_needed(given, 0, "sub", name);
  run.budget().scan(text.size());
  const size_t characters = characters_in(text);
  if (part.empty()) {
    const size_t found = name == "count" ? characters + 1 : name == "rfind" ? characters : 0;
    return Value(static_cast<int64_t>(found));
  }
  const Needle needle(run.budget(), part, name == "rfind");
  if (name == "count") return Value(static_cast<int64_t>(count_of(text, needle)));
  const size_t at = needle.find(text);
  if (at != std::string::npos) return Value(static_cast<int64_t>(characters_in(std::string_view(text).substr(0, at))));
  if (name == "index") fail_call("'index' finds nothing");
  return Value(int64_t{-1});
}

// Supports "{}", "{0}" and "{name}", without format specifications.
Value format_method(Run& run, const std::string& text, Given given) {
  run.budget().scan(text.size() * 2);
  run.charge(text.size());
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      out += c;
      ++at;
    } else if (c == '{') {
      const size_t end = text.find('}', at);
      if (end == std::string::npos) fail_call("'format' lacks a '}'");
      const std::string field = text.substr(at + 1, end - at - 1);
      const bool digits =
          !field.empty() && field.size() < 4 && field.find_first_not_of("0123456789") == std::string::npos;
      const size_t place = field.empty() ? next++
                           : digits      ? static_cast<size_t>(std::stoi(field))
                                         : given.values.size();
      const Value* const value = given.find(place, field);
      if (!value) fail_call(fmt::format("'format' has no value for '{{{}}}'", printable(field)));
      run.spend(1 + given.named.size() / 4);
      out += run.text(*value);
      at = end;
    } else {
      out += c;
    }
  }
  return Value(std::move(out));
}

bool all_are(const std::string& text, bool (*holds)(char)) {
  return !text.empty() && std::all_of(text.begin(), text.end(), holds);
}

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

Value text_method(Run& run, const std::string& name, const std::string& text, Given given) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") return strip_method(run, name, text, given);
  if (name == "split" || name == "rsplit") return split_method(run, name, text, given);
  if (name == "splitlines") {
    const Value* const ends = given.find(0, "keepends");
    run.budget().scan(text.size());
    return list_of(run, split_lines(text, ends && ends->truth()));
  }
  if (name == "startswith" || name == "endswith") return affix_method(run, name, text, given);
  if (name == "replace") return replace_method(run, text, given);
  if (name == "find" || name == "rfind" || name == "index" || name == "count")
    return find_method(run, name, text, given);
  if (name == "format") return format_method(run, text, given);
  if (name == "join") {
    CallArguments separator;
    separator.values = {Value(text)};
    return apply_filter(run, "join", needed(given, 0, "iterable", name), separator);
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& part = text_needed(given, 0, "prefix", name);
    run.charge(text.size());
    run.spend(part.size() / 64);
    if (name == "removeprefix") return Value(text.starts_with(part) ? text.substr(part.size()) : text);
    return Value(text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text);
  }
  given.expect(name, {});
  run.charge(text.size());
  run.budget().scan(text.size());
  if (name == "upper") return Value(upper_case(text));
  if (name == "lower") return Value(lower_case(text));
  if (name == "title") return Value(title_case(text, true));
  if (name == "capitalize") return Value(capitalised(text));
  if (name == "isdigit") return Value(all_are(text, is_ascii_digit));
  if (name == "isalpha") return Value(all_are(text, is_ascii_letter));
  if (name == "isalnum") return Value(all_are(text, [](char c) { return is_ascii_digit(c) || is_ascii_letter(c); }));
  return Value(!text.empty() && stripped(text, true, false).empty());  // isspace
}

Value map_method(Run& run, const std::string& name, const Value& self, Given given) {
  if (name == "get") {
    given.expect(name, {"key", "default"});
    if (const Value* const found = self.find(run.budget(), needed(given, 0, "key", name))) return *found;
    const Value* const otherwise = given.find(1, "default");
    return otherwise ? *otherwise : Value::none();
  }
  given.expect(name, {});
  if (name == "items") return apply_filter(run, "items", self, {});
  if (name == "copy") return self;
  run.charge(self.entries().size() * sizeof(Value));
  List items;
  for (const auto& [key, value] : self.entries()) items.push_back(name == "keys" ? key : value);
  return Value::list(std::move(items));
}

Value list_method(Run& run, const std::string& name, const Value& self, Given given) {
  given.expect(name, {"value"});
  const Value& wanted = needed(given, 0, "value", name);
  const List& items = self.items();
  run.spend(items.size() / 8);
  const auto same = [&](const Value& item) { return equal(run.budget(), item, wanted); };
  if (name == "count") return Value(static_cast<int64_t>(std::count_if(items.begin(), items.end(), same)));
  const auto at = std::find_if(items.begin(), items.end(), same);
  if (at == items.end()) fail_call("'index' finds nothing");
  return Value(static_cast<int64_t>(at - items.begin()));
}

Value range_function(Run& run, Given given) {
  given.expect("range", {"start", "stop", "step"});
  if (given.values.empty()) fail_call("'range' needs a number");
  const auto number = [&](size_t i) { return integer_or(&given.values[i], 0, "range"); };
  const bool one = given.values.size() == 1;
  const int64_t begin = one ? 0 : number(0), end = number(one ? 0 : 1), step = given.values.size() > 2 ? number(2) : 1;
  constexpr uint64_t kMost = 100'000;  // as in the sandbox of Jinja
  if (step == 0) fail_call("the step of 'range' is 0");
  // Without overflow: all differences of two whole numbers fit.
  const uint64_t across = step > 0 ? static_cast<uint64_t>(end) - static_cast<uint64_t>(begin)
                                   : static_cast<uint64_t>(begin) - static_cast<uint64_t>(end);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = (step > 0 ? begin < end : begin > end) ? (across - 1) / stride + 1 : 0;
  if (count > kMost) fail_call(fmt::format("'range' has more than {} numbers", kMost));
  run.charge(count * sizeof(Value));
  List items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i)
    items.emplace_back(static_cast<int64_t>(static_cast<uint64_t>(begin) + i * static_cast<uint64_t>(step)));
  return Value::list(std::move(items));
}

Value time_function(Run& run, Given given) {
  const std::string& format = text_needed(given, 0, "format", "strftime_now");
  if (format.size() > 256) fail_call("the format of 'strftime_now' has more than 256 bytes");
  run.spend(32);
  std::tm local{};
  const std::time_t now = run.now();
  ::localtime_r(&now, &local);
  char buffer[2048];
  return Value(std::string(buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &local)));
}

Value free_function(Run& run, const std::string& name, Given given) {
  if (name == "range") return range_function(run, given);
  if (name == "strftime_now") return time_function(run, given);
  if (name == "raise_exception") fail_call(run.text(needed(given, 0, "message", name)));
  run.spend(given.named.size());
  if (name == "dict") {
    Map entries;
    for (const auto& [key, value] : given.named) entries.emplace_back(Value(key), value);
    return Value::map(std::move(entries));
  }
  const auto space = std::make_shared<NamespaceObject>();
  if (!given.values.empty() && given.values[0].is_map())
    for (const auto& [key, value] : given.values[0].entries()) {
      run.spend(1 + space->attributes.size() / 16);
      run.charge(sizeof(Value));
      space->set(run.text(key), value);
    }
  for (const auto& [key, value] : given.named) space->set(key, value);
  return Value::space(space);
}

}  // namespace

bool has_function(std::string_view name) { return is_among(kFunctions, name); }

bool has_method(Run& run, const Value& self, std::string_view name) {
  if (self.is_text()) return is_among(kTextMethods, name);
  if (self.is_map()) return is_among(kMapMethods, name) || (is_among(kChanges, name) && !self.find(run.budget(), name));
  return self.is_list() && (is_among(kListMethods, name) || is_among(kChanges, name));
}

Value call_function(Run& run, const Callable& function, const CallArguments& given) {
  const std::string& name = function.name;
  if (!function.self) return free_function(run, name, given);
  const Value& self = *function.self;
  if (self.is_text()) return text_method(run, name, self.text(), given);
  if (name == "cycle" && self.is_integer()) {
    if (given.values.empty()) fail_call("'cycle' needs values");
    return given.values[static_cast<size_t>(self.integer()) % given.values.size()];
  }
  if (is_among(kChanges, name))
    fail_call(fmt::format("'{}' would change {}, which templates may not do", name, self.kind()));
  return self.is_map() ? map_method(run, name, self, given) : list_method(run, name, self, given);
}

List items_of(Run& run, const Value& value) {
  if (value.is_list()) {
    run.charge(value.items().size() * sizeof(Value));
    return value.items();
  }
  if (value.is_undefined()) return {};
  List items;
  if (value.is_map()) {
    run.charge(value.entries().size() * sizeof(Value));
    for (const auto& [key, item] : value.entries()) items.push_back(key);
    return items;
  }
  if (!value.is_text()) fail_call(fmt::format("{} has no items", value.kind()));
  const std::string& text = value.text();
  run.charge(text.size() * 2 * sizeof(Value));
  for (size_t at = 0; at < text.size();) {
    const size_t length = decode_utf8(text, at).length;
    items.emplace_back(std::string_view(text).substr(at, length));
    at += length;
  }
  return items;
}

}  // namespace harmonics::engine::jinja
