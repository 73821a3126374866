#include "engine/plugin/named_settings.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "engine/plugin/arguments.hpp"
#include "engine/plugin/range.hpp"

namespace harmonics::engine {

namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// Returns the words of a choice.
std::vector<std::string_view> words_of(const SettingSpec& spec) {
  std::vector<std::string_view> words;
  for (std::string_view rest = spec.range;; rest.remove_prefix(rest.find('|') + 1)) {
    words.push_back(rest.substr(0, rest.find('|')));
    if (rest.find('|') == std::string_view::npos) return words;
  }
}

const char* what_is_right(SettingSpec::Kind kind) {
  switch (kind) {
    case SettingSpec::Kind::number:
      return "give a number from 0 to 1e6";
    case SettingSpec::Kind::fraction:
      return "give a number of at least 0 and below 1";
    case SettingSpec::Kind::part:
      return "give a number from 0 to 1";
    case SettingSpec::Kind::span:
      return "give a whole number of steps, or a fraction of the run below 1";
    case SettingSpec::Kind::any:
      return "give a number";
    case SettingSpec::Kind::whole:
      return "give a whole number";
    case SettingSpec::Kind::flag:
    case SettingSpec::Kind::choice:
      break;
  }
  return "give true or false";
}

bool is_right(SettingSpec::Kind kind, double v) {
  switch (kind) {
    case SettingSpec::Kind::number:
      return v >= 0 && v <= 1e6;
    case SettingSpec::Kind::fraction:
      return v >= 0 && v < 1;
    case SettingSpec::Kind::part:
      return v >= 0 && v <= 1;
    case SettingSpec::Kind::span:
      return v >= 0 && v <= 1e15 && (v < 1 || v == std::floor(v));
    case SettingSpec::Kind::any:
      return std::isfinite(v);
    case SettingSpec::Kind::whole:
      return std::abs(v) <= 0x1p53 && v == std::floor(v);
    case SettingSpec::Kind::flag:
    case SettingSpec::Kind::choice:
      break;
  }
  return v == 0 || v == 1;
}

// Returns a row for a plugin's item, whose arguments were checked at registration.
std::shared_ptr<const NamedRow> row_of(const ItemPtr& item) {
  auto row = std::make_shared<NamedRow>(NamedRow{item->name, item->description, {}, item});
  for (const ArgumentSpec& a : item->arguments) {
    const AttributeValue otherwise = *parse_argument(a.type, a.default_text);
    const auto number = [](const auto& v) -> double {
      if constexpr (std::is_arithmetic_v<std::decay_t<decltype(v)>>)
        return static_cast<double>(v);
      else
        return 0;
    };
    const SettingSpec::Kind kind = a.type == HX_ARG_BOOL  ? SettingSpec::Kind::flag
                                   : a.type == HX_ARG_INT ? SettingSpec::Kind::whole
                                                          : SettingSpec::Kind::any;
    row->settings.push_back({a.name, std::visit(number, otherwise), kind, a.range, a.description});
  }
  return row;
}

class Parser {
 public:
  Parser(std::string_view what, std::string_view text, const std::vector<NamedRow>& rows, std::string_view example,
         Registry& registry, uint32_t kind)
      : what_(what), text_(trim(text)), rows_(rows), example_(example), registry_(registry), kind_(kind) {}

  NamedSettings run() {
    const size_t open = text_.find('(');
    find_row(trim(text_.substr(0, open)));
    for (const SettingSpec& spec : result_.row->settings) result_.values.push_back({&spec, spec.otherwise});
    if (open == std::string_view::npos) return std::move(result_);
    if (text_.back() != ')')
      throw Error(ErrorKind::Syntax, fmt::format("{} '{}' lacks its closing parenthesis", what_, text_));
    std::string_view rest = text_.substr(open + 1, text_.size() - open - 2);
    while (!trim(rest).empty()) {
      const size_t comma = rest.find(',');
      assign(trim(rest.substr(0, comma)));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return std::move(result_);
  }

 private:
  void find_row(std::string_view name) {
    std::vector<std::string> known;
    std::string all;
    for (const NamedRow& r : rows_) {
      if (r.name == name) result_.row = {std::shared_ptr<const NamedRow>(), &r};
      known.emplace_back(r.name);
      all += (all.empty() ? "" : &r == &rows_.back() ? " and " : ", ") + known.back();
    }
    if (!result_.row)
      if (const ItemPtr item = registry_.find(kind_, name)) result_.row = row_of(item);
    if (result_.row) return;
    for (std::string& more : registry_.names(kind_)) known.push_back(std::move(more));
    Error e(ErrorKind::Name, fmt::format("unknown {} '{}'", what_, name));
    if (auto near = nearest(name, known))
      e.note("did you mean '" + *near + "'?");
    else
      e.note(fmt::format("{}s are {}, e.g. '{}'", what_, all, example_));
    throw e;
  }

  void assign(std::string_view part) {
    const size_t eq = part.find('=');
    if (eq == std::string_view::npos)
      throw Error(ErrorKind::Syntax, fmt::format("{} setting '{}' lacks its value", what_, part), {},
                  {fmt::format("write NAME=VALUE, e.g. {}", example_)});
    Setting& setting = find_setting(trim(part.substr(0, eq)));
    if (setting.given)
      throw Error(ErrorKind::Name, fmt::format("{} setting '{}' is given twice", what_, setting.spec->name), {},
                  {"keep one of them"});
    setting.value = value_of(*setting.spec, trim(part.substr(eq + 1)));
    setting.given = true;
  }

  Setting& find_setting(std::string_view name) {
    std::vector<std::string> known;
    std::string all;
    for (Setting& s : result_.values) {
      if (s.spec->name == name) return s;
      known.emplace_back(s.spec->name);
      all += (all.empty() ? "" : ", ") + known.back();
    }
    Error e(ErrorKind::Name, fmt::format("{} '{}' has no setting '{}'", what_, result_.row->name, name));
    if (auto near = nearest(name, known))
      e.note("did you mean '" + *near + "'?");
    else
      e.note(fmt::format("it has {}", all));
    throw e;
  }

  double choice_of(const SettingSpec& spec, std::string_view text) const {
    const std::vector<std::string_view> words = words_of(spec);
    const auto at = std::find(words.begin(), words.end(), text);
    if (at != words.end()) return static_cast<double>(at - words.begin());
    std::string all(words[0]);
    for (size_t i = 1; i < words.size(); ++i) all += (i + 1 == words.size() ? " or " : ", ") + std::string(words[i]);
    throw Error(ErrorKind::Type, fmt::format("{} setting '{}' has the value '{}'", what_, spec.name, text), {},
                {"give " + all});
  }

  double value_of(const SettingSpec& spec, std::string_view text) const {
    if (spec.kind == SettingSpec::Kind::choice) return choice_of(spec, text);
    double v = std::nan("");
    if (text == "true" || text == "false") {
      if (spec.kind == SettingSpec::Kind::flag) v = text == "true";
    } else {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
      if (error != std::errc() || end != text.data() + text.size()) v = std::nan("");
    }
    if (is_right(spec.kind, v)) {
      if (spec.range.empty() || in_range(v, std::string(spec.range))) return v;
      throw Error(ErrorKind::Type, fmt::format("{} setting '{}' has the value '{}'", what_, spec.name, text), {},
                  {"give " + spoken_range(std::string(spec.range))});
    }
    throw Error(ErrorKind::Type, fmt::format("{} setting '{}' has the value '{}'", what_, spec.name, text), {},
                {fmt::format("{}, e.g. {}={}", what_is_right(spec.kind), spec.name, value_text(spec, spec.otherwise))});
  }

  std::string_view what_, text_;
  const std::vector<NamedRow>& rows_;
  std::string_view example_;
  Registry& registry_;
  uint32_t kind_;
  NamedSettings result_;
};

}  // namespace

std::string value_text(const SettingSpec& spec, double value) {
  if (spec.kind == SettingSpec::Kind::choice) return std::string(words_of(spec).at(static_cast<size_t>(value)));
  if (spec.kind == SettingSpec::Kind::flag) return value != 0 ? "true" : "false";
  return fmt::format("{:g}", value);
}

double NamedSettings::number(std::string_view name) const {
  for (const Setting& s : values)
    if (s.spec->name == name) return s.value;
  return 0;
}

bool NamedSettings::given(std::string_view name) const {
  for (const Setting& s : values)
    if (s.spec->name == name) return s.given;
  return false;
}

AttributeMap NamedSettings::attributes() const {
  AttributeMap map;
  for (const Setting& s : values) {
    const std::string name(s.spec->name);
    if (s.spec->kind == SettingSpec::Kind::flag)
      map.set(name, s.value != 0);
    else if (s.spec->kind == SettingSpec::Kind::whole)
      map.set(name, static_cast<int64_t>(s.value));
    else
      map.set(name, s.value);
  }
  return map;
}

std::string NamedSettings::str() const {
  std::string s;
  for (const Setting& v : values)
    if (v.spec->kind != SettingSpec::Kind::choice || v.value != v.spec->otherwise)
      s += fmt::format("{}{}={}", s.empty() ? "" : ", ", v.spec->name, value_text(*v.spec, v.value));
  return fmt::format("{}({})", row->name, s);
}

NamedSettings parse_named_settings(std::string_view what, std::string_view text, const std::vector<NamedRow>& rows,
                                   std::string_view example, Registry& registry, uint32_t kind) {
  return Parser(what, text, rows, example, registry, kind).run();
}

std::string signature(const NamedRow& row) {
  std::string s;
  for (const SettingSpec& spec : row.settings)
    s += fmt::format("{}{} = {}", s.empty() ? "" : ", ", spec.name, value_text(spec, spec.otherwise));
  return fmt::format("{}({})", row.name, s);
}

}  // namespace harmonics::engine
