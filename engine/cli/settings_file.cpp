#include "engine/cli/settings_file.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <toml++/toml.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"

namespace harmonics::cli {

namespace {

class FileReader {
 public:
  FileReader(const CommandTable& table, const std::string& path) : table_(table), path_(path) {}

  SettingsLayer run(const std::string& text) {
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
  SettingsLayer settings_;
};

}  // namespace

bool is_configurable(const FlagRow& flag) { return flag.name != "help" && flag.name != "help-all" && flag.name != "version" && flag.name != "config"; }

SettingsLayer parse_settings(const CommandTable& table, const std::string& path, const std::string& text) { return FileReader(table, path).run(text); }

}  // namespace harmonics::cli
