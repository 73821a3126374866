// Settings for flags that were not given, by precedence: HARMONICS_FLAG, --config FILE, ./harmonics.toml, the user's
// file and the system's file. The current folder may come from an untrusted source, so that only settings of training
// are taken from its file, and none if other users can change it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cli/options/settings_file.hpp"

namespace harmonics::engine::cli {

class Configuration {
 public:
  // Reads all settings. `file` is the value of --config. Unknown keys, values of the wrong type and files that are not
  // TOML throw errors with file and line, whose exit code is 78. Throws ErrorKind::NoInput if `file` is missing.
  static Configuration read(const CommandTable& table, const std::optional<std::string>& file);

  // Returns the effective setting of a verb's flag, or null.
  const FlagSetting* find(const std::string& verb, const std::string& flag) const;
  const std::vector<std::string>& files() const { return files_; }  // files in use, by precedence
  const std::vector<std::string>& notes() const { return notes_; }  // ignored settings with the reason

  // Returns whether the setting is from ./harmonics.toml.
  static bool is_from_here(const FlagSetting& setting);

  // Returns the configuration files that are searched in addition to --config, by precedence.
  static std::vector<std::string> usual_files();

 private:
  std::vector<SettingsLayer> layers_;  // by precedence
  std::vector<std::string> files_, notes_;

  void read_here(const CommandTable& table);
  // Adds notes for environment variables whose names resemble those of settings.
  void note_typos(const CommandTable& table);
};

}  // namespace harmonics::engine::cli
