#include "engine/cli/terminal/command_text.hpp"

#include <algorithm>
#include <cctype>

namespace harmonics::engine::cli {

namespace {

bool is_secret(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name == "token" || name == "password" || name == "secret";
}

// Replaces the password in an address, between the colon and the last '@' of its authority: "user:PASSWORD@host".
std::string without_password(std::string word) {
  const size_t begin = word.find("://");
  if (begin == std::string::npos) return word;
  const size_t end = std::min(word.find_first_of("/?#", begin + 3), word.size());
  const size_t at = word.rfind('@', end), colon = word.find(':', begin + 3);
  if (at == std::string::npos || at < begin + 3 || colon >= at) return word;
  return word.replace(colon + 1, at - colon - 1, "PASSWORD");
}

// Replaces secret options of stream addresses and page addresses: "?token=TOKEN", "#token=TOKEN".
std::string without_secret_options(const std::string& word) {
  std::string text;
  for (size_t at = 0; at < word.size();) {
    const size_t end = std::min(word.find_first_of("?&#", at), word.size());
    const std::string part = word.substr(at, end - at);
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const bool option = at > 0 && equals != std::string::npos && is_secret(name);
    text += option ? name + "=SECRET" : part;
    if (end < word.size()) text += word[end];
    at = end + 1;
  }
  return text;
}

std::vector<std::string> without_secrets(std::vector<std::string> words) {
  for (size_t i = 0; i < words.size(); ++i) {
    constexpr std::string_view kFlag = "--token";
    if (words[i] == kFlag && i + 1 < words.size())
      words[++i] = "TOKEN";
    else if (words[i].rfind(std::string(kFlag) + "=", 0) == 0)
      words[i] = "--token=TOKEN";
    else
      words[i] = engine::cli::without_secrets(words[i]);
  }
  return words;
}

std::string line_of(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

}  // namespace

std::string without_secrets(const std::string& address) { return without_secret_options(without_password(address)); }

std::string quoted(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%") ==
          std::string::npos)
    return word;
  std::string s = "'";
  for (const char c : word) s += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return s + "'";
}

std::string command_text(const std::vector<std::string>& words) { return line_of(without_secrets(words)); }

std::string resuming_line(const std::vector<std::string>& command, const std::string& folder) {
  std::vector<std::string> words;
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word.rfind("--resume=", 0) == 0) continue;
    if (word == "--resume") {
      if (i + 1 < command.size() && command[i + 1].rfind('-', 0) != 0) ++i;
      continue;
    }
    words.push_back(word);
  }
  const auto options = std::find(words.begin(), words.end(), "--");  // arguments after it are no options
  std::vector<std::string> resume{"--resume"};
  if (!folder.empty()) resume.push_back(folder);
  words.insert(options, resume.begin(), resume.end());
  return command_text(words);
}

}  // namespace harmonics::engine::cli
