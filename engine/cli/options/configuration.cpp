#include "engine/cli/options/configuration.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <string_view>

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/foreign_file.hpp"
#include "engine/base/read_file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/options/manual.hpp"

namespace harmonics::engine::cli {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = size_t{1} << 20;  // limit for one file

std::string environment_text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string variable_name(const std::string& flag) {
  std::string name = "HARMONICS_";
  for (char c : flag) name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// Splits "a; b", the values of a repeated flag.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, ';');) {
    const size_t a = part.find_first_not_of(' '), b = part.find_last_not_of(' ');
    if (a != std::string::npos) parts.push_back(part.substr(a, b - a + 1));
  }
  return parts;
}

constexpr char kHere[] = "harmonics.toml", kShownHere[] = "./harmonics.toml";
// Settings that neither run code nor open a port nor read or write a file.
constexpr std::string_view kAllowedHere[] = {"epochs", "steps",   "batch",     "lr",     "optimizer", "schedule",
                                             "seed",   "threads", "precision", "device", "quiet"};

bool is_allowed_here(const std::string& flag) {
  return std::find(std::begin(kAllowedHere), std::end(kAllowedHere), flag) != std::end(kAllowedHere);
}

std::string listed(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

using Expect = std::function<void(const struct stat&)>;
std::string text_of(const std::string& path, const Expect& expect = {}) {
  try {
    return read_file(path, kMostBytes, expect);
  } catch (const Error& e) {
    throw Error(e.kind(), e.what(), {},
                {"it should contain settings; 'harmonics config show' lists the files in effect"});
  }
}

}  // namespace

std::vector<std::string> Configuration::usual_files() {
  std::vector<std::string> files{kHere};
  const std::string config = environment_text("XDG_CONFIG_HOME"), home = environment_text("HOME");
  if (!config.empty())
    files.push_back(config + "/harmonics/config.toml");
  else if (!home.empty())
    files.push_back(home + "/.config/harmonics/config.toml");
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
      if (!value.empty())
        environment[{"", f.name}] = {f.repeats ? split(value) : std::vector<std::string>{value}, "environment " + name};
    }
  c.layers_.push_back(std::move(environment));
  c.note_typos(table);
  std::vector<std::string> files = usual_files();
  if (file) files.insert(files.begin(), *file);
  for (size_t i = 0; i < files.size(); ++i) {
    std::error_code none;
    const bool asked = file && i == 0;
    if (!asked && !fs::is_regular_file(files[i], none)) continue;
    if (!asked && files[i] == kHere) {
      if (!file || !fs::equivalent(*file, kHere, none)) c.read_here(table);
      continue;
    }
    c.layers_.push_back(parse_settings(table, files[i], text_of(files[i])));
    c.files_.push_back(files[i]);
  }
  return c;
}

void Configuration::note_typos(const CommandTable& table) {
  constexpr std::string_view kBegin = "HARMONICS_";
  std::vector<std::string> known;
  for (const ManualRow& row : variable_rows())
    if (std::string_view(row.name).starts_with(kBegin)) known.push_back(std::string(row.name).substr(kBegin.size()));
  for (const VerbRow& verb : table)
    for (const FlagRow& f : verb.flags)
      if (is_configurable(f)) known.push_back(variable_name(f.name).substr(kBegin.size()));
  for (char** entry = ::environ; entry && *entry; ++entry) {
    const std::string_view line = *entry;
    if (!line.starts_with(kBegin)) continue;
    const std::string name(line.substr(kBegin.size(), line.find('=') - kBegin.size()));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (const auto near = nearest(name, known))
      notes_.push_back(
          fmt::format("environment variable {}{} is not a setting; did you mean {}{}?", kBegin, name, kBegin, *near));
  }
}

void Configuration::read_here(const CommandTable& table) {
  std::string text, foreign;
  struct stat link {};
  const bool links = ::lstat(kHere, &link) == 0 && S_ISLNK(link.st_mode);
  if (links && link.st_uid != ::geteuid() && link.st_uid != 0) foreign = "is a link of another user";
  if (foreign.empty()) text = text_of(kHere, [&](const struct stat& state) { foreign = foreign_access(state); });
  if (!foreign.empty()) {
    notes_.push_back(fmt::format("{} is ignored: it {}", kShownHere, foreign));
    return;
  }
  SettingsLayer layer = parse_settings(table, kShownHere, text);
  std::set<std::string> left_out;
  std::erase_if(layer, [&](const auto& entry) {
    const bool out = !is_allowed_here(entry.first.second);
    if (out) left_out.insert(entry.first.second);
    return out;
  });
  if (!left_out.empty())
    notes_.push_back(fmt::format(
        "{} of {} {} ignored: a file in the current folder may only set training options; --config {} accepts all keys",
        listed(left_out), kShownHere, left_out.size() == 1 ? "is" : "are", kHere));
  layers_.push_back(std::move(layer));
  files_.emplace_back(kShownHere);
}

bool Configuration::is_from_here(const FlagSetting& setting) {
  return setting.origin.rfind(std::string(kShownHere) + ":", 0) == 0;
}

const FlagSetting* Configuration::find(const std::string& verb, const std::string& flag) const {
  for (const SettingsLayer& layer : layers_)
    for (const std::string& section : {verb, std::string()})
      if (const auto it = layer.find({section, flag}); it != layer.end()) return &it->second;
  return nullptr;
}

}  // namespace harmonics::engine::cli
