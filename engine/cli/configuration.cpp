#include "engine/cli/configuration.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/core.h>
#include <toml++/toml.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"

namespace harmonics::cli {

namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
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

class FileReader {
 public:
  FileReader(const CommandTable& table, const std::string& path) : table_(table), path_(path) {}

  std::map<std::pair<std::string, std::string>, Setting> run(const std::string& text) {
    toml::table root;
    try {
      root = toml::parse(text, path_);
    } catch (const toml::parse_error& e) {
      throw Error(ErrorKind::Syntax, fmt::format("{}: {}", place(e.source()), e.description()), {}, {"settings are written as in TOML: batch = 128, and [run] before those of one verb"});
    }
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      if (const toml::table* section = node.as_table()) verb(name, *section, node.source());
      else flag("", name, node);
    }
    return std::move(settings_);
  }

 private:
  std::string place(const toml::source_region& where) const { return fmt::format("{}:{}", path_, where.begin.line); }

  void verb(const std::string& name, const toml::table& section, const toml::source_region& where) {
    std::vector<std::string> known;
    for (const VerbRow& row : table_) known.push_back(row.name);
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      Error e(ErrorKind::Name, fmt::format("{}: there is no verb '{}'", place(where), name));
      if (auto near = nearest(name, known)) e.note("did you mean '[" + *near + "]'?");
      throw e;
    }
    for (const auto& [key, node] : section) flag(name, std::string(key.str()), node);
  }

  const FlagRow& find(const std::string& verb, const std::string& name, const toml::source_region& where) const {
    std::vector<std::string> known;
    for (const VerbRow& row : table_) {
      if (!verb.empty() && row.name != verb) continue;
      for (const FlagRow& f : row.flags) {
        if (!is_configurable(f)) continue;
        if (f.name == name) return f;
        known.push_back(f.name);
      }
    }
    Error e(ErrorKind::Name, fmt::format("{}: unknown key '{}'{}", place(where), name, verb.empty() ? "" : " of '" + verb + "'"));
    if (auto near = nearest(name, known)) e.note("did you mean '" + *near + "'?");
    else e.note(verb.empty() ? "keys are the long names of flags, as 'harmonics VERB --help' shows them" : "keys are the long names of its flags: 'harmonics " + verb + " --help'");
    throw e;
  }

  void flag(const std::string& verb, const std::string& name, const toml::node& node) {
    const FlagRow& row = find(verb, name, node.source());
    Setting s{{}, place(node.source())};
    if (const toml::array* all = node.as_array()) {
      if (!row.repeats) throw Error(ErrorKind::Type, fmt::format("{}: '{}' takes one value, not a list", s.origin, name));
      for (const toml::node& one : *all) s.values.push_back(text_of(name, row, one));
    } else {
      s.values.push_back(text_of(name, row, node));
    }
    settings_[{verb, name}] = std::move(s);
  }

  std::string text_of(const std::string& name, const FlagRow& row, const toml::node& node) const {
    if (row.value.empty()) {
      if (const auto* b = node.as_boolean()) return b->get() ? "true" : "false";
      throw Error(ErrorKind::Type, fmt::format("{}: '{}' is true or false", place(node.source()), name));
    }
    if (const auto* s = node.as_string()) return s->get();
    if (const auto* i = node.as_integer()) return std::to_string(i->get());
    if (const auto* f = node.as_floating_point()) return fmt::format("{}", f->get());
    throw Error(ErrorKind::Type, fmt::format("{}: the value of '{}' is neither a text nor a number", place(node.source()), name), {}, {"texts stand in quotes"});
  }

  const CommandTable& table_;
  std::string path_;
  std::map<std::pair<std::string, std::string>, Setting> settings_;
};

std::string shown(const std::string& path) { return path == "harmonics.toml" ? "./harmonics.toml" : path; }

}  // namespace

bool is_configurable(const FlagRow& flag) { return flag.name != "help" && flag.name != "help-all" && flag.name != "version" && flag.name != "config"; }

std::vector<std::string> Configuration::usual_files() {
  std::vector<std::string> files{"harmonics.toml"};
  const std::string config = variable("XDG_CONFIG_HOME"), home = variable("HOME");
  if (!config.empty()) files.push_back(config + "/harmonics/config.toml");
  else if (!home.empty()) files.push_back(home + "/.config/harmonics/config.toml");
  files.push_back("/etc/harmonics/config.toml");
  return files;
}

Configuration Configuration::read(const CommandTable& table, const std::optional<std::string>& file) {
  Configuration c;
  Layer environment;
  for (const VerbRow& verb : table)
    for (const FlagRow& f : verb.flags) {
      if (!is_configurable(f)) continue;
      const std::string name = variable_name(f.name), value = variable(name.c_str());
      if (!value.empty()) environment[{"", f.name}] = {f.repeats ? split(value) : std::vector<std::string>{value}, "environment " + name};
    }
  c.layers_.push_back(std::move(environment));
  std::vector<std::string> files = usual_files();
  if (file) files.insert(files.begin(), *file);
  for (size_t i = 0; i < files.size(); ++i) {
    std::error_code none;
    const bool asked = file && i == 0;
    if (!asked && !fs::is_regular_file(files[i], none)) continue;
    std::ifstream in(files[i], std::ios::binary);
    std::stringstream text;
    if (in && !fs::is_directory(files[i], none)) text << in.rdbuf();
    if (!in || fs::is_directory(files[i], none)) throw Error(ErrorKind::NoInput, fmt::format("the configuration {} cannot be read", files[i]), {}, {"check the path; 'harmonics config show' lists the files that count"});
    const std::string name = shown(files[i]);
    c.layers_.push_back(FileReader(table, name).run(text.str()));
    c.files_.push_back(name);
  }
  return c;
}

const Setting* Configuration::find(const std::string& verb, const std::string& flag) const {
  for (const Layer& layer : layers_)
    for (const std::string& section : {verb, std::string()})
      if (const auto it = layer.find({section, flag}); it != layer.end()) return &it->second;
  return nullptr;
}

}  // namespace harmonics::cli
