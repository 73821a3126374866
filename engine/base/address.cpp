#include "engine/base/address.hpp"

#include <algorithm>

namespace harmonics::engine {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class AddressParser {
 public:
  explicit AddressParser(std::string_view text) : text_(text) {}

  Address parse() {
    if (text_.empty()) fail("is empty", "write SCHEME:PATH, for example file:data.csv");
    size_t at = scheme();
    const size_t hash = text_.find('#', at);
    const size_t end = std::min(hash, text_.size());
    const size_t question = std::min(text_.find('?', at), end);
    address_.path = decoded(at, question);
    if (question < end) options(question + 1, end);
    if (hash != std::string_view::npos) address_.fragment = decoded(hash + 1, text_.size());
    return std::move(address_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& remedy) const {
    throw Error(ErrorKind::Usage, "address '" + std::string(text_) + "' " + what + "; " + remedy);
  }

  // Reads the scheme and returns where the path starts. A scheme is a letter, then letters, digits, '+', '-' and '_',
  // up to a colon. Other text is a path.
  size_t scheme() {
    size_t i = 0;
    while (i < text_.size() && (is_letter(text_[i]) ||
                                (i && (is_digit(text_[i]) || text_[i] == '+' || text_[i] == '-' || text_[i] == '_'))))
      ++i;
    if (i && i < text_.size() && text_[i] == ':') {
      address_.scheme = text_.substr(0, i);
      return i + 1;
    }
    if (text_[0] == ':')
      fail("has no scheme before its colon", "write for example file:" + std::string(text_.substr(1)));
    address_.scheme = "file";
    return 0;
  }

  void options(size_t first, size_t end) {
    while (true) {
      const size_t stop = std::min(text_.find('&', first), end);
      const size_t equals = text_.find('=', first);
      const std::string piece(text_.substr(first, stop - first));
      if (piece.empty())
        fail("has an empty option at character " + std::to_string(first + 1), "write ?key=value&key=value");
      if (equals >= stop) fail("has the option '" + piece + "' without a value", "write " + piece + "=VALUE");
      AddressOption option{decoded(first, equals), decoded(equals + 1, stop)};
      if (option.key.empty()) fail("has an option without a name: '" + piece + "'", "write ?key=value&key=value");
      if (address_.find(option.key)) fail("gives the option '" + option.key + "' twice", "leave one of them out");
      address_.options.push_back(std::move(option));
      if (stop == end) return;
      first = stop + 1;
    }
  }

  std::string decoded(size_t first, size_t end) const {
    std::string out;
    for (size_t i = first; i < end; ++i) {
      if (text_[i] != '%') {
        out += text_[i];
        continue;
      }
      const int high = i + 1 < end ? hex_value(text_[i + 1]) : -1, low = i + 2 < end ? hex_value(text_[i + 2]) : -1;
      if (high < 0 || low < 0)
        fail("has '" + std::string(text_.substr(i, std::min<size_t>(3, end - i))) + "' at character " +
                 std::to_string(i + 1) + " where '%' and two hexadecimal digits were expected",
             "write '%25' for a percent sign");
      if (high == 0 && low == 0) fail("has a zero byte '%00' at character " + std::to_string(i + 1), "leave it out");
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
    return out;
  }

  std::string_view text_;
  Address address_;
};

std::string encoded(std::string_view text, std::string_view reserved) {
  static const char digits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (c != '%' && reserved.find(c) == std::string_view::npos) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += {'%', digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

}  // namespace

const std::string* Address::find(std::string_view key) const {
  for (const AddressOption& o : options)
    if (o.key == key) return &o.value;
  return nullptr;
}

std::optional<std::string> Address::take(std::string_view key) {
  const auto at = std::find_if(options.begin(), options.end(), [&](const AddressOption& o) { return o.key == key; });
  if (at == options.end()) return std::nullopt;
  std::string value = std::move(at->value);
  options.erase(at);
  return value;
}

std::string Address::str() const {
  std::string out = scheme + ":" + encoded(path, "?#");
  char separator = '?';
  for (const AddressOption& o : options) {
    out += separator + encoded(o.key, "=&#") + "=" + encoded(o.value, "&#");
    separator = '&';
  }
  if (fragment) out += "#" + encoded(*fragment, "");
  return out;
}

Address parse_address(std::string_view text) { return AddressParser(text).parse(); }

Binding parse_binding(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && (is_letter(text[i]) || text[i] == '_' || (i && is_digit(text[i])))) ++i;
  if (i == 0 || i == text.size() || text[i] != '=') return {"", parse_address(text)};
  const std::string name(text.substr(0, i));
  if (i + 1 == text.size())
    throw Error(ErrorKind::Usage,
                "'" + std::string(text) + "' binds '" + name + "' to no address; write " + name + "=file:PATH");
  return {name, parse_address(text.substr(i + 1))};
}

}  // namespace harmonics::engine
