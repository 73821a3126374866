#include "engine/cli/options/command_table.hpp"

#include <algorithm>

#include "engine/cli/options/flags.hpp"

namespace harmonics::engine::cli {

const FlagRow* VerbRow::find(const std::string& flag) const {
  for (const FlagRow& f : flags)
    if (f.name == flag) return &f;
  return nullptr;
}

std::vector<std::string> names_of(const CommandTable& table) {
  std::vector<std::string> all;
  for (const VerbRow& row : table) all.push_back(row.name);
  return all;
}

std::vector<std::string> words_of(const FlagRow& flag) { return flag.names ? flag.names() : flag.choices; }
std::vector<std::string> words_of(const PositionalRow& p) { return p.names ? p.names() : p.choices; }

std::string full_help(const FlagRow& flag) {
  const std::vector<std::string> words = words_of(flag);
  // The help of a flag with names continues the list of names. Without names its leading punctuation is dropped.
  const size_t from = words.empty() && flag.names ? flag.help.find_first_not_of(",: ") : 0;
  return either(words) + flag.help.substr(std::min(from, flag.help.size())) +
         (flag.initial.empty() ? "" : " (default " + flag.initial + ")");
}

}  // namespace harmonics::engine::cli
