// A file of settings: TOML, checked against the table of verbs and flags.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/cli/options/command_table.hpp"

namespace harmonics::engine::cli {

struct FlagSetting {
  std::vector<std::string> values;  // as typed on the command line
  std::string origin;               // "environment HARMONICS_BATCH", "./harmonics.toml:3"
};

using SettingsLayer = std::map<std::pair<std::string, std::string>, FlagSetting>;  // verb ("": every) and flag

// Throws ErrorKind::Syntax, Name or Type with `path` and the line when it is not TOML, a key is unknown, or a value is
// of the wrong kind.
SettingsLayer parse_settings(const CommandTable& table, const std::string& path, const std::string& text);

// Returns whether a file may set the flag. Flags about a single call are excluded.
bool is_configurable(const FlagRow& flag);

}  // namespace harmonics::engine::cli
