// Settings from files and the environment, for flags that were not given: HARMONICS_FLAG, then --config FILE,
// ./harmonics.toml, the user's and the system's file. The current folder may have come from anywhere: of its file only
// settings count that change how much is learned and how, and nothing of it when others may change it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cli/settings_file.hpp"

namespace harmonics::cli {

class Configuration {
 public:
  // `file`: of --config. Unknown keys, values of the wrong kind and files that are not TOML are errors with file and
  // line that exit with 78; a --config file that is not there is ErrorKind::NoInput.
  static Configuration read(const CommandTable& table, const std::optional<std::string>& file);

  // The setting that counts for a flag of a verb; null: none.
  const Setting* find(const std::string& verb, const std::string& flag) const;
  const std::vector<std::string>& files() const { return files_; }  // that count, the strongest first
  const std::vector<std::string>& notes() const { return notes_; }  // what does not count, and why

  // Of the current folder's file, for flags that were taken from it.
  static bool is_from_here(const Setting& setting);

  // Where files are looked for besides --config, the strongest first.
  static std::vector<std::string> usual_files();

 private:
  std::vector<SettingsLayer> layers_;  // the strongest first
  std::vector<std::string> files_, notes_;

  void read_here(const CommandTable& table);
  // Notes variables whose names are near to those of settings.
  void note_typos(const CommandTable& table);
};

}  // namespace harmonics::cli
