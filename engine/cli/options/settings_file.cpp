#include "engine/cli/options/settings_file.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "engine/cli/options/toml.hpp"

namespace harmonics::engine::cli {

namespace {

class FileReader {
 public:
  FileReader(const CommandTable& table, const std::string& path) : table_(table), path_(path) {}

  SettingsLayer run(const std::string& text) {
    for (const TomlTable& table : parse_toml(path_, text)) {
      if (table.name == "override") {
        for (const TomlEntry& entry : table.entries) override_with(entry);
        continue;
      }
      if (!table.name.empty()) check_verb(table);
      for (const TomlEntry& entry : table.entries) flag(table.name, entry);
    }
    return std::move(settings_);
  }

 private:
  std::string place(size_t line) const { return fmt::format("{}:{}", path_, line); }

  void check_verb(const TomlTable& table) const {
    std::vector<std::string> known;
    for (const VerbRow& row : table_) known.push_back(row.name);
    if (std::find(known.begin(), known.end(), table.name) != known.end()) return;
    Error e(ErrorKind::Name, fmt::format("{}: there is no verb '{}'", place(table.line), table.name));
    if (auto near = nearest(table.name, known)) e.note("did you mean '[" + *near + "]'?");
    throw e;
  }

  // Reads an entry of [override]: attention = "mine" is --override attention=mine for every verb.
  void override_with(const TomlEntry& entry) {
    if (entry.list || entry.values[0].kind != TomlValue::Kind::text)
      throw Error(ErrorKind::Type, fmt::format("{}: '{}' of [override] is the name of an implementation, in quotes",
                                               place(entry.line), entry.key));
    FlagSetting& all = settings_[{"", "override"}];
    if (all.origin.empty()) all.origin = place(entry.line);
    all.values.push_back(entry.key + "=" + entry.values[0].text);
  }

  const FlagRow& find(const std::string& verb, const std::string& name, size_t line) const {
    std::vector<std::string> known;
    for (const VerbRow& row : table_) {
      if (!verb.empty() && row.name != verb) continue;
      for (const FlagRow& f : row.flags) {
        if (!is_configurable(f)) continue;
        if (f.name == name) return f;
        known.push_back(f.name);
      }
    }
    Error e(ErrorKind::Name,
            fmt::format("{}: unknown key '{}'{}", place(line), name, verb.empty() ? "" : " of '" + verb + "'"));
    if (auto near = nearest(name, known))
      e.note("did you mean '" + *near + "'?");
    else
      e.note(verb.empty() ? "keys are the long names of flags, as 'harmonics VERB --help' shows them"
                          : "keys are the long names of its flags: 'harmonics " + verb + " --help'");
    throw e;
  }

  void flag(const std::string& verb, const TomlEntry& entry) {
    const FlagRow& row = find(verb, entry.key, entry.line);
    FlagSetting s{{}, place(entry.line)};
    if (entry.list && !row.repeats)
      throw Error(ErrorKind::Type, fmt::format("{}: '{}' takes one value, not a list", s.origin, entry.key));
    for (const TomlValue& value : entry.values) {
      const bool is_switch = row.value.empty(), is_flag = value.kind == TomlValue::Kind::flag;
      if (is_switch && !is_flag)
        throw Error(ErrorKind::Type, fmt::format("{}: '{}' is true or false", s.origin, entry.key));
      if (!is_switch && is_flag)
        throw Error(ErrorKind::Type,
                    fmt::format("{}: the value of '{}' is neither a string nor a number", s.origin, entry.key), {},
                    {"write strings in quotes"});
      s.values.push_back(value.text);
    }
    settings_[{verb, entry.key}] = std::move(s);
  }

  const CommandTable& table_;
  std::string path_;
  SettingsLayer settings_;
};

}  // namespace

bool is_configurable(const FlagRow& flag) {
  return flag.name != "help" && flag.name != "help-all" && flag.name != "version" && flag.name != "config";
}

SettingsLayer parse_settings(const CommandTable& table, const std::string& path, const std::string& text) {
  return FileReader(table, path).run(text);
}

}  // namespace harmonics::engine::cli
