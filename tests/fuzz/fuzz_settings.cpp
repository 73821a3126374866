// Any text is a settings file or an error that names its line; accepted settings are known ones, and print as text
// with the same meaning.
#include "engine/cli/options/settings_file.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::cli;
using namespace harmonics::engine::testing;

namespace {

const CommandTable& table() {
  static const CommandTable rows = [] {
    FlagRow batch{"batch", "b", "N", "samples in a step", "", false, {}},
        metric{"metric", "", "METRIC", "measure this too", "", true, {}},
        quiet{"quiet", "q", "", "say nothing", "", false, {}}, config{"config", "", "FILE", "settings", "", false, {}},
        by{"override", "", "OP=NAME", "who computes it", "", true, {}};
    return CommandTable{{"run", "train", "", {}, {batch, metric, quiet, config, by}},
                        {"infer", "use", "", {}, {batch, quiet}}};
  }();
  return rows;
}

void check(const std::pair<std::string, std::string>& key, const FlagSetting& setting) {
  const auto& [verb, name] = key;
  bool known = false, repeats = false;
  for (const VerbRow& row : table())
    for (const FlagRow& flag : row.flags)
      if (flag.name == name && (verb.empty() || verb == row.name))
        known = is_configurable(flag), repeats = flag.repeats;
  require(known, "a setting that is none");
  require(repeats || setting.values.size() == 1, "not one value");
  require(name != "quiet" || setting.values[0] == "true" || setting.values[0] == "false",
          "a switch that is neither on nor off");
  require(setting.origin.rfind("input:", 0) == 0, "a setting without its place");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  return refusing([&] {
    try {
      const SettingsLayer settings = parse_settings(table(), "input", text);
      for (const auto& [key, setting] : settings) check(key, setting);
      const SettingsLayer again = parse_settings(table(), "input", text);
      require(again.size() == settings.size(), "read twice, understood twice");
    } catch (const Error& e) {
      require(std::strstr(e.what(), "input:"), "a refusal without its place");
      throw;
    }
  });
}
