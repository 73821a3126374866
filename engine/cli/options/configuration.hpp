// Settings from files and the environment, for flags that were not given: HARMONICS_FLAG, then --config FILE,
// ./harmonics.toml, the user's file and the system's file. The current folder may come from an untrusted source. Only
// settings that change how much and how a run learns are taken from its file, and none if other users can change the
// file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cli/options/settings_file.hpp"

namespace harmonics::engine::cli {

class Configuration {
 public:
  // `file`: the value of --config. Unknown keys, values of the wrong kind and files that are not TOML are errors with
  // file and line that exit with 78. A missing --config file is ErrorKind::NoInput.
  static Configuration read(const CommandTable& table, const std::optional<std::string>& file);

  // Returns the effective setting for a flag of a verb, or null.
  const FlagSetting* find(const std::string& verb, const std::string& flag) const;
  const std::vector<std::string>& files() const { return files_; }  // files in use, by precedence
  const std::vector<std::string>& notes() const { return notes_; }  // ignored settings, and the reason

  // Returns whether the setting comes from the current folder's file.
  static bool is_from_here(const FlagSetting& setting);

  // Returns the configuration files that are searched besides --config, by precedence.
  static std::vector<std::string> usual_files();

 private:
  std::vector<SettingsLayer> layers_;  // by precedence
  std::vector<std::string> files_, notes_;

  void read_here(const CommandTable& table);
  // Adds notes for variables whose names are similar to those of settings.
  void note_typos(const CommandTable& table);
};

}  // namespace harmonics::engine::cli
