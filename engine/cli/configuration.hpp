// Settings from files and the environment, for flags that were not given: HARMONICS_FLAG, then --config FILE, ./harmonics.toml,
// the user's and the system's file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cli/settings_file.hpp"

namespace harmonics::cli {

class Configuration {
 public:
  // `file`: of --config. Unknown keys, values of the wrong kind and files that are not TOML are errors with file and line that
  // exit with 78; a --config file that is not there is ErrorKind::NoInput.
  static Configuration read(const CommandTable& table, const std::optional<std::string>& file);

  // The setting that counts for a flag of a verb; null: none.
  const Setting* find(const std::string& verb, const std::string& flag) const;
  const std::vector<std::string>& files() const { return files_; }  // that were there, the strongest first

  // Where files are looked for besides --config, the strongest first.
  static std::vector<std::string> usual_files();

 private:
  std::vector<SettingsLayer> layers_;  // the strongest first
  std::vector<std::string> files_;
};

}  // namespace harmonics::cli
