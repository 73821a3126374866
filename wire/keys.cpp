#include "wire/keys.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <sstream>

#include <harmonics/error.hpp>

namespace harmonics::wire {
namespace {

constexpr size_t kKeyBytes = 40;

Error unreadable(const std::string& path, const std::string& what) {
  return Error(ErrorKind::Stream, path + ": " + what).note("make keys with 'harmonics keys FILE'");
}

constexpr std::string_view kDigits =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";

// Every five characters encode four bytes.
bool is_key(const std::string& text) {
  if (text.size() != kKeyBytes) return false;
  for (size_t i = 0; i < text.size(); i += 5) {
    uint64_t value = 0;
    for (const char c : std::string_view(text).substr(i, 5)) {
      const size_t digit = kDigits.find(c);
      if (digit == std::string_view::npos) return false;
      value = value * 85 + digit;
    }
    if (value > UINT32_MAX) return false;
  }
  return true;
}

struct Line {
  std::string name, key;  // "public", "secret", or "" for a key alone
  std::string bound;      // "": no bound sender name
};

std::vector<Line> read_lines(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw unreadable(path, "cannot be read");
  std::vector<Line> lines;
  size_t number = 0;
  for (std::string text; std::getline(in, text);) {
    ++number;
    std::istringstream words(text);
    std::vector<std::string> parts;
    for (std::string word; words >> word && !(parts.empty() && word[0] == '#');) parts.push_back(word);
    if (parts.empty()) continue;
    const bool named = parts.size() >= 3 && parts[1] == "=";
    const size_t at = named ? 2 : 0;
    Line line{named ? parts[0] : "", parts[at], ""};
    const bool binds = parts.size() > at + 1 && parts[at + 1] == "as";
    for (size_t i = at + 2; binds && i < parts.size(); ++i) line.bound += (i > at + 2 ? " " : "") + parts[i];
    if (binds && line.bound.empty())
      throw unreadable(path, fmt::format("line {} has no name: write KEY as NAME", number));
    if (!is_key(line.key)) throw unreadable(path, fmt::format("line {} has no key of 40 characters", number));
    lines.push_back(std::move(line));
  }
  return lines;
}

Key one(const std::string& path, const std::vector<Line>& lines, const std::string& name) {
  for (const Line& line : lines)
    if (line.name == name) return line.key;
  throw unreadable(path, "has no line '" + name + " = KEY'");
}

}  // namespace

KeyPair read_key_pair(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & 077) != 0)
    throw Error(ErrorKind::Denied, path + ": other users can read this secret key").note("chmod 600 " + path);
  const std::vector<Line> lines = read_lines(path);
  return {one(path, lines, "public"), one(path, lines, "secret")};
}

Key read_public_key(const std::string& text) { return is_key(text) ? text : one(text, read_lines(text), "public"); }

std::vector<Key> read_allowed(const std::string& path) {
  std::vector<Key> keys;
  for (const Line& line : read_lines(path)) {
    if (line.name == "secret") throw unreadable(path, "has a secret key where public ones are listed");
    keys.push_back(line.key);
  }
  if (keys.empty()) throw unreadable(path, "has no public key, so no sender would be accepted");
  return keys;
}

BoundNames read_bound_names(const std::string& path) {
  BoundNames bound;
  for (const Line& line : read_lines(path))
    if (!line.bound.empty()) bound.emplace(line.bound, line.key);
  return bound;
}

bool may_use(const BoundNames& bound, const Key& key, const std::string& name) {
  const auto [first, last] = bound.equal_range(name);
  if (first != last) return std::any_of(first, last, [&](const auto& entry) { return entry.second == key; });
  return std::none_of(bound.begin(), bound.end(), [&](const auto& entry) { return entry.second == key; });
}

Key key_of(std::span<const unsigned char, 32> bytes) {
  Key key(kKeyBytes, ' ');
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint32_t value = static_cast<uint32_t>(bytes[i]) << 24 | static_cast<uint32_t>(bytes[i + 1]) << 16 |
                     static_cast<uint32_t>(bytes[i + 2]) << 8 | bytes[i + 3];
    for (size_t k = 5; k-- > 0; value /= 85) key[i / 4 * 5 + k] = kDigits[value % 85];
  }
  return key;
}

std::vector<std::string> admission(const std::vector<std::string>& question, const std::vector<Key>& allowed) {
  Key key;
  if (question.size() == 7 && question[5] == "CURVE" && question[6].size() == 32)
    key = key_of(std::span<const unsigned char, 32>(reinterpret_cast<const unsigned char*>(question[6].data()), 32));
  const bool known = !key.empty() && std::find(allowed.begin(), allowed.end(), key) != allowed.end();
  return {"1.0",
          question.size() > 1 ? question[1] : "",
          known ? "200" : "400",
          known ? "OK" : "this key is not allowed",
          key,
          ""};
}

}  // namespace harmonics::wire
