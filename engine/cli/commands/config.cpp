// harmonics config show: prints every effective setting and its origin.
#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/options/configuration.hpp"
#include "engine/cli/terminal/output.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

std::string written(const FlagRow& flag, const std::vector<std::string>& values) {
  const auto quoted = [&](const std::string& v) {
    const bool plain = flag.value.empty() || (!v.empty() && v.find_first_not_of("0123456789.-+e") == std::string::npos);
    if (plain) return v;
    std::string s = "\"";
    for (char c : v) s += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    return s + "\"";
  };
  if (!flag.repeats) return quoted(values.front());
  std::string s;
  for (const std::string& v : values) s += (s.empty() ? "" : ", ") + quoted(v);
  return "[" + s + "]";
}

struct Shown {
  const VerbRow* verb;
  const FlagRow* flag;
  std::vector<std::string> values;
  std::string origin;
};

std::vector<Shown> settings(const Configuration& c, const std::string& only) {
  std::vector<Shown> all;
  for (const VerbRow& verb : command_table())
    for (const FlagRow& flag : verb.flags) {
      if ((!only.empty() && verb.name != only) || !is_configurable(flag)) continue;
      if (const FlagSetting* s = c.find(verb.name, flag.name))
        all.push_back({&verb, &flag, s->values, s->origin});
      else if (!only.empty() && !flag.initial.empty())
        all.push_back({&verb, &flag, {flag.initial}, "default"});
    }
  return all;
}

}  // namespace

int config_command(const Options& options) {
  const std::string only = options.files.size() > 1 ? options.files[1] : "";
  if (!only.empty()) verb_named(only);
  const Configuration c =
      Configuration::read(command_table(), options.config.empty() ? std::nullopt : std::optional(options.config));
  const std::vector<Shown> all = settings(c, only);
  if (options.json) {
    json::array rows, looked;
    for (const Shown& s : all)
      rows.push_back(json::object{
          {"verb", s.verb->name}, {"key", s.flag->name}, {"values", json::value_from(s.values)}, {"origin", s.origin}});
    for (const std::string& file : Configuration::usual_files()) looked.push_back(json::value(file));
    print_json(json::object{
        {"version", 1}, {"files", json::value_from(c.files())}, {"looked_for", looked}, {"settings", rows}});
    return kDone;
  }
  std::string verb;
  for (const Shown& s : all) {
    if (verb != s.verb->name) print("{}[{}]\n", verb.empty() ? "" : "\n", s.verb->name);
    verb = s.verb->name;
    const std::string line = s.flag->name + " = " + written(*s.flag, s.values);
    if (options.origin)
      print("{:<40} # {}\n", line, s.origin);
    else
      print("{}\n", line);
  }
  if (all.empty()) {
    print("# nothing is set; flags win over HARMONICS_FLAG, --config FILE, and then:\n");
    for (const std::string& file : Configuration::usual_files()) print("#   {}\n", file);
  }
  return kDone;
}

}  // namespace harmonics::engine::cli
