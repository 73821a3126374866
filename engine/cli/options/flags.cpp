#include "engine/cli/options/flags.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr int64_t kNoLimit = int64_t{1} << 40;  // messages omit a maximum from here on

Error not_what(const FlagRow& flag, const std::string& text, const std::string& what) {
  Error e(ErrorKind::Usage, fmt::format("--{}: '{}' is not {}", flag.name, text, what));
  const std::string& example = flag.example.empty() ? flag.initial : flag.example;
  if (!example.empty()) e.note(fmt::format("for instance --{} {}", flag.name, example));
  return e;
}

template <typename Number>
bool read_number(const std::string& text, Number& v) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, v);
  return error == std::errc() && at == end;
}

void expect_choice(const FlagRow& flag, const std::string& text) {
  if (std::find(flag.choices.begin(), flag.choices.end(), text) != flag.choices.end()) return;
  Error e(ErrorKind::Usage, fmt::format("--{}: '{}' is not {}", flag.name, text, either(flag.choices)));
  if (const std::string meant = did_you_mean(text, flag.choices); !meant.empty()) e.note(meant);
  throw e;
}

}  // namespace

std::string either(const std::vector<std::string>& words) {
  std::string s;
  for (size_t i = 0; i < words.size(); ++i) s += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return s;
}

bool read_switch(const FlagRow& flag, const std::string& text) {
  for (const char* yes : {"true", "on", "yes", "1"})
    if (text == yes) return true;
  for (const char* no : {"false", "off", "no", "0"})
    if (text == no) return false;
  throw not_what(flag, text, "true or false");
}

double duration_seconds(const std::string& flag, const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {  // not a number: reported below
  }
  const std::string unit = text.substr(std::min(used, text.size()));
  const double scale = unit == "ms"  ? 1e-3
                       : unit == "s" ? 1
                       : unit == "m" ? 60
                       : unit == "h" ? 3600
                       : unit == "d" ? 86400
                                     : -1;
  if (!(value > 0 && std::isfinite(value)) || scale < 0)
    throw Error(ErrorKind::Usage, fmt::format("--{}: '{}' is not a duration", flag, text), {},
                {"write 5ms, 90s, 10m or 1.5h"});
  return value * scale;
}

void give(const FlagRow& flag, Options& options, const std::string& value) {
  for (size_t at = 0; at <= value.size();) {
    const size_t end = flag.list ? std::min(value.find(',', at), value.size()) : value.size();
    const std::string part = value.substr(at, end - at);
    if (!flag.choices.empty()) expect_choice(flag, part);
    flag.take(flag, options, part);
    at = end + 1;
  }
}

bool Flags::has(const char* name) const {
  return std::any_of(verb_.flags.begin(), verb_.flags.end(), [&](const FlagRow& row) { return row.name == name; });
}

FlagRow& Flags::add(const char* name, const char* value, const char* help, Take take) {
  FlagRow row;
  row.name = name;
  row.value = value;
  row.help = help;
  row.group = group_;
  row.take = std::move(take);
  verb_.flags.push_back(std::move(row));
  return verb_.flags.back();
}

PositionalRow& Flags::positional(const char* name, const char* help) {
  verb_.positionals.push_back({name, help, true, false, {}});
  return verb_.positionals.back();
}

FlagRow& Flags::on(const char* name, const char* help, bool Options::*to) {
  return add(name, "", help,
             [to](const FlagRow& f, Options& o, const std::string& text) { o.*to = read_switch(f, text); });
}

FlagRow& Flags::text(const char* name, const char* value, const char* help, std::string Options::*to) {
  return add(name, value, help, [to](const FlagRow&, Options& o, const std::string& text) { o.*to = text; });
}

FlagRow& Flags::text(const char* name, const char* value, const char* help, void (*to)(Options&, const std::string&)) {
  return add(name, value, help, [to](const FlagRow&, Options& o, const std::string& text) { to(o, text); });
}

FlagRow& Flags::texts(const char* name, const char* value, const char* help, std::vector<std::string> Options::*to) {
  FlagRow& row =
      add(name, value, help, [to](const FlagRow&, Options& o, const std::string& text) { (o.*to).push_back(text); });
  row.repeats = true;
  return row;
}

FlagRow& Flags::whole(const char* name, int64_t least, int64_t most, const char* help, void (*to)(Options&, int64_t)) {
  return add(name, "NUMBER", help, [least, most, to](const FlagRow& f, Options& o, const std::string& text) {
    int64_t v = 0;
    if (!read_number(text, v) || v < least || v > most)
      throw not_what(f, text,
                     most < kNoLimit ? fmt::format("a whole number from {} to {}", thousands(least), thousands(most))
                                     : fmt::format("a whole number of at least {}", least));
    to(o, v);
  });
}

FlagRow& Flags::real(const char* name, Least least, double most, const char* help, void (*to)(Options&, double)) {
  return add(name, "NUMBER", help, [least, most, to](const FlagRow& f, Options& o, const std::string& text) {
    double v = 0;
    const bool number = read_number(text, v) && std::isfinite(v);
    if (!number || v < 0 || v > most || (least == Least::above_zero && v == 0))
      throw not_what(f, text,
                     fmt::format("a number {}{}", least == Least::above_zero ? "above 0" : "of at least 0",
                                 std::isfinite(most) ? fmt::format(" and at most {:g}", most) : ""));
    to(o, v);
  });
}

FlagRow& Flags::duration(const char* name, const char* help, void (*to)(Options&, double)) {
  return add(name, "DURATION", help,
             [to](const FlagRow& f, Options& o, const std::string& text) { to(o, duration_seconds(f.name, text)); });
}

}  // namespace harmonics::engine::cli
