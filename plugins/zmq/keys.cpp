#include "keys.hpp"

#include <zmq.h>

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include <harmonics/error.hpp>

namespace harmonics::zmq {
namespace {

constexpr size_t kKeyBytes = 40;

Error unreadable(const std::string& path, const std::string& what) {
  return Error(ErrorKind::Stream, path + ": " + what).note("make keys with 'harmonics keys FILE'");
}

bool is_key(const std::string& text) {
  uint8_t bytes[32];
  return text.size() == kKeyBytes && zmq_z85_decode(bytes, text.c_str()) != nullptr;
}

struct Line {
  std::string name, key;  // "public", "secret", or "" for a key alone
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
    Line line{parts.size() >= 3 && parts[1] == "=" ? parts[0] : "", parts.size() >= 3 && parts[1] == "=" ? parts[2] : parts[0]};
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
    throw Error(ErrorKind::Denied, path + ": others may read this secret key").note("chmod 600 " + path);
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
  if (keys.empty()) throw unreadable(path, "has no public key: nobody could send");
  return keys;
}

}  // namespace harmonics::zmq
