// Conversions and descriptions of scalars.
#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include "dsl/document/document.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::document {

namespace {

bool is_decimal(char c) { return c >= '0' && c <= '9'; }

// Returns the number without its plus sign; "" if the text is not a number or has leading zeros.
std::string_view number_text(const Node& node) {
  if (node.kind != Kind::scalar || node.quoted) return {};
  std::string_view text = node.text;
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const std::string_view digits = !text.empty() && text[0] == '-' ? text.substr(1) : text;
  if (digits.empty() || (!is_decimal(digits[0]) && digits[0] != '.')) return {};
  if (digits.size() > 1 && digits[0] == '0' && is_decimal(digits[1])) return {};
  return text;
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  return at == entries.end() ? nullptr : &at->value;
}

std::optional<int64_t> whole_of(const Node& node) {
  const std::string_view text = number_text(node);
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size()) return {};
  return value;
}

std::optional<double> real_of(const Node& node) {
  const std::string_view text = number_text(node);
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size()) return {};
  if (!std::isfinite(value)) return {};
  return value;
}

std::optional<bool> truth_of(const Node& node) {
  if (node.kind != Kind::scalar || node.quoted) return {};
  if (node.text == "true" || node.text == "True") return true;
  if (node.text == "false" || node.text == "False") return false;
  return {};
}

std::string what_is(const Node& node) {
  switch (node.kind) {
    case Kind::null:
      return "nothing";
    case Kind::list:
      return node.items.empty() ? "an empty list" : "a list";
    case Kind::map:
      return node.entries.empty() ? "an empty map" : "a map";
    case Kind::scalar:
      break;
  }
  if (real_of(node)) return "the number " + printable(node.text, 40);
  if (truth_of(node)) return printable(node.text, 40);
  return "the string " + shown_name(node.text);
}

}  // namespace harmonics::engine::document
