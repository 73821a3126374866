#include "engine/transformer/lora_settings.hpp"

#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kHighestTrainedRank = 1 << 12;

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

[[noreturn]] void refuse_value(std::string_view name, std::string_view value, const char* must) {
  throw Error(ErrorKind::Usage, fmt::format("lora: {} is {}; it is {}", name, shown_name(std::string(value)), must));
}

template <typename T>
T lora_number(std::string_view name, std::string_view value, const char* must) {
  T number{};
  const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (failed != std::errc() || end != value.data() + value.size()) refuse_value(name, value, must);
  return number;
}

bool lora_flag(std::string_view name, std::string_view value) {
  if (value.empty() || value == "true") return true;
  if (value == "false") return false;
  refuse_value(name, value, "true or false");
}

std::vector<std::string> lora_targets(std::string_view value) {
  std::vector<std::string> all;
  while (true) {
    const size_t end = std::min(value.find('+'), value.size());
    const std::string_view one = without_spaces(value.substr(0, end));
    if (one.empty()) refuse_value("targets", value, "names with '+' between them");
    all.emplace_back(one);
    if (end == value.size()) return all;
    value.remove_prefix(end + 1);
  }
}

struct LoraEntry {
  std::string_view name;
  void (*read)(LoraSettings&, std::string_view value);
};
constexpr LoraEntry kLoraEntries[] = {
    {"rank", [](LoraSettings& s, std::string_view v) { s.rank = lora_number<int64_t>("rank", v, "a whole number"); }},
    {"alpha", [](LoraSettings& s, std::string_view v) { s.alpha = lora_number<double>("alpha", v, "a number"); }},
    {"dropout",
     [](LoraSettings& s, std::string_view v) { s.dropout = lora_number<double>("dropout", v, "0 to less than 1"); }},
    {"targets", [](LoraSettings& s, std::string_view v) { s.targets = lora_targets(v); }},
    {"rslora", [](LoraSettings& s, std::string_view v) { s.rslora = lora_flag("rslora", v); }},
    {"dora", [](LoraSettings& s, std::string_view v) { s.dora = lora_flag("dora", v); }},
    {"init", [](LoraSettings& s, std::string_view v) { s.init = v; }},
    {"seed", [](LoraSettings& s, std::string_view v) { s.seed = lora_number<uint64_t>("seed", v, "a whole number"); }},
    {"from", [](LoraSettings& s, std::string_view v) { s.from = v; }},
};

}  // namespace

double LoraSettings::factor() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

void expect_lora(const LoraSettings& s) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorKind::Usage, "lora: " + what); };
  if (s.rank < 1 || s.rank > kHighestTrainedRank)
    refuse(fmt::format("rank is {}; it is 1 to {}", s.rank, kHighestTrainedRank));
  if (!std::isfinite(s.alpha) || s.alpha <= 0) refuse(fmt::format("alpha is {:g}; it is above 0", s.alpha));
  if (!(s.dropout >= 0 && s.dropout < 1)) refuse(fmt::format("dropout is {:g}; it is 0 to less than 1", s.dropout));
  if (s.init != "kaiming" && s.init != "gaussian")
    refuse(fmt::format("init is {}; it is kaiming or gaussian", shown_name(s.init)));
  if (s.targets.empty() && s.from.empty()) refuse("there are no targets");
}

LoraSettings parse_lora(std::string_view text) {
  LoraSettings settings;
  for (std::string_view rest = text; !without_spaces(rest).empty();) {
    const size_t end = std::min(rest.find(','), rest.size());
    const std::string_view entry = rest.substr(0, end);
    const size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view name = without_spaces(entry.substr(0, equals));
    const std::string_view value = equals == entry.size() ? "" : without_spaces(entry.substr(equals + 1));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    std::vector<std::string> known;
    bool found = false;
    for (const LoraEntry& row : kLoraEntries) {
      known.emplace_back(row.name);
      if (row.name == name) row.read(settings, value), found = true;
    }
    if (found) continue;
    const std::string meant = did_you_mean(name, known);
    throw Error(ErrorKind::Usage, fmt::format("lora: there is no setting {}", shown_name(std::string(name))), {},
                {meant.empty() ? "settings: " + comma_separated(known) : meant});
  }
  expect_lora(settings);
  return settings;
}

}  // namespace harmonics::engine
