#include "engine/cli/configuration.hpp"

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/read_file.hpp"

namespace harmonics::cli {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 20;  // of a file

std::string environment_text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string variable_name(const std::string& flag) {
  std::string name = "HARMONICS_";
  for (char c : flag) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// "a; b" for flags that repeat.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, ';');) {
    const size_t a = part.find_first_not_of(' '), b = part.find_last_not_of(' ');
    if (a != std::string::npos) parts.push_back(part.substr(a, b - a + 1));
  }
  return parts;
}

std::string text_of(const std::string& path) {
  try {
    return read_file(path, kMostBytes);
  } catch (const Error& e) {
    throw Error(e.kind(), e.what(), {}, {"it was to hold settings; 'harmonics config show' lists the files that count"});
  }
}

std::string shown(const std::string& path) { return path == "harmonics.toml" ? "./harmonics.toml" : path; }

}  // namespace

std::vector<std::string> Configuration::usual_files() {
  std::vector<std::string> files{"harmonics.toml"};
  const std::string config = environment_text("XDG_CONFIG_HOME"), home = environment_text("HOME");
  if (!config.empty()) files.push_back(config + "/harmonics/config.toml");
  else if (!home.empty()) files.push_back(home + "/.config/harmonics/config.toml");
  files.push_back("/etc/harmonics/config.toml");
  return files;
}

Configuration Configuration::read(const CommandTable& table, const std::optional<std::string>& file) {
  Configuration c;
  SettingsLayer environment;
  for (const VerbRow& verb : table)
    for (const FlagRow& f : verb.flags) {
      if (!is_configurable(f)) continue;
      const std::string name = variable_name(f.name), value = environment_text(name.c_str());
      if (!value.empty()) environment[{"", f.name}] = {f.repeats ? split(value) : std::vector<std::string>{value}, "environment " + name};
    }
  c.layers_.push_back(std::move(environment));
  std::vector<std::string> files = usual_files();
  if (file) files.insert(files.begin(), *file);
  for (size_t i = 0; i < files.size(); ++i) {
    std::error_code none;
    const bool asked = file && i == 0;
    if (!asked && !fs::is_regular_file(files[i], none)) continue;
    const std::string name = shown(files[i]);
    c.layers_.push_back(parse_settings(table, name, text_of(files[i])));
    c.files_.push_back(name);
  }
  return c;
}

const Setting* Configuration::find(const std::string& verb, const std::string& flag) const {
  for (const SettingsLayer& layer : layers_)
    for (const std::string& section : {verb, std::string()})
      if (const auto it = layer.find({section, flag}); it != layer.end()) return &it->second;
  return nullptr;
}

}  // namespace harmonics::cli
