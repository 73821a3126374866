#include "engine/plugin/range.hpp"

#include <charconv>
#include <limits>
#include <optional>

#include <harmonics/abi.h>

namespace harmonics::engine {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Interval {
  double low = -kInfinity, high = kInfinity;
  bool above = false, below = false;  // the bound itself is excluded
  std::string low_text, high_text;

  bool contains(double v) const { return (above ? v > low : v >= low) && (below ? v < high : v <= high); }
};

bool read(const std::string& text, double& value) {
  if (text.empty()) return true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::optional<Interval> interval_of(const std::string& range) {
  const size_t dots = range.find("..");
  if (dots == std::string::npos) return std::nullopt;
  Interval i;
  i.low_text = range.substr(0, dots);
  i.high_text = range.substr(dots + 2);
  if (!i.low_text.empty() && i.low_text.back() == '<') i.above = true, i.low_text.pop_back();
  if (!i.high_text.empty() && i.high_text.front() == '<') i.below = true, i.high_text.erase(0, 1);
  const bool open = (i.above && i.low_text.empty()) || (i.below && i.high_text.empty());
  if (open || (i.low_text.empty() && i.high_text.empty())) return std::nullopt;
  if (!read(i.low_text, i.low) || !read(i.high_text, i.high) || !(i.low <= i.high)) return std::nullopt;
  return i;
}

std::vector<std::string> choices_of(const std::string& range) {
  std::vector<std::string> all;
  for (size_t at = 0; at <= range.size();) {
    const size_t end = std::min(range.find('|', at), range.size());
    all.push_back(range.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

struct Within {
  const Interval& interval;
  bool operator()(int64_t v) const { return interval.contains(static_cast<double>(v)); }
  bool operator()(double v) const { return interval.contains(v); }
  bool operator()(bool) const { return false; }
  bool operator()(const std::string&) const { return false; }
  bool operator()(const std::vector<std::string>&) const { return false; }
  template <typename T>
  bool operator()(const std::vector<T>& list) const {
    for (const T& v : list)
      if (!interval.contains(static_cast<double>(v))) return false;
    return true;
  }
};

}  // namespace

bool is_range(uint32_t type, const std::string& range) {
  if (type == HX_ARG_INT || type == HX_ARG_FLOAT || type == HX_ARG_INTS) return interval_of(range).has_value();
  if (type != HX_ARG_STRING) return false;
  for (const std::string& choice : choices_of(range))
    if (choice.empty()) return false;
  return true;
}

bool in_range(const AttributeValue& value, const std::string& range) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    for (const std::string& choice : choices_of(range))
      if (choice == *text) return true;
    return false;
  }
  const auto interval = interval_of(range);
  return interval && std::visit(Within{*interval}, value);
}

std::string spoken_range(const std::string& range) {
  const auto i = interval_of(range);
  if (!i) {
    std::string text = "one of ";
    for (const std::string& choice : choices_of(range)) text += (text.size() > 7 ? ", " : "") + choice;
    return text;
  }
  const std::string low = i->low_text.empty() ? "" : (i->above ? "above " : "at least ") + i->low_text;
  const std::string high = i->high_text.empty() ? "" : (i->below ? "below " : "at most ") + i->high_text;
  if (!low.empty() && !high.empty() && !i->above && !i->below)
    return "a value from " + i->low_text + " to " + i->high_text;
  return "a value " + low + (low.empty() || high.empty() ? "" : " and ") + high;
}

}  // namespace harmonics::engine
