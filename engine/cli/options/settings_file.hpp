// Reads a TOML file of settings and checks it against the table of verbs and flags.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/cli/options/command_table.hpp"

namespace harmonics::engine::cli {

struct FlagSetting {
  std::vector<std::string> values;  // in the form of the command line
  std::string origin;               // "environment HARMONICS_BATCH", "./harmonics.toml:3"
};

using SettingsLayer = std::map<std::pair<std::string, std::string>, FlagSetting>;  // by verb ("": all verbs) and flag

// Parses settings. Throws, with `path` and the line, ErrorKind::Syntax for text that is not TOML, Name for an unknown
// key, and Type for a value of the wrong type.
SettingsLayer parse_settings(const CommandTable& table, const std::string& path, const std::string& text);

// Returns whether a file may set the flag. Flags that make sense only for a single call are excluded.
bool is_configurable(const FlagRow& flag);

}  // namespace harmonics::engine::cli
