// harmonics plugin: creates, checks and reloads plugins, and diagnoses why a plugin does not load.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/child_process.hpp"
#include "engine/base/spelling.hpp"
#include "formats/utf8.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/commands/plugin.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/conformance/item_checks.hpp"
#include "engine/plugin/discovery.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/plugin/trial.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;
namespace fs = std::filesystem;

namespace {

using Outcome = Finding::Outcome;
constexpr double kLoading = 30, kChecking = 60;  // limits in seconds between lines of a child; see plugin_patience
constexpr std::chrono::seconds kPulse{1};        // interval between lines of a long check

// Result of loading a library in a child process, with the findings up to its end.
struct Examined {
  struct Check {
    std::string name;
    std::optional<Finding> finding;  // none: the check did not finish
  };
  struct Thing {
    std::string kind, name;
    std::vector<Check> checks;
  };
  std::vector<Thing> things;
  std::string error;  // the error of loading
  std::vector<std::string> notes;
  double patience = kLoading;  // seconds allowed for the current phase
  bool loaded = false, finished = false;
  ChildEnd end;

  // Describes how the child process ended early; "" if it finished.
  std::string broke_off() const {
    if (finished || !error.empty()) return "";
    if (end.timed_out) return fmt::format("did not end within {:g} seconds", patience);
    if (end.signal) return "crashed with " + signal_name(end.signal);
    return "ended the process";
  }
  std::string where() const {
    if (!loaded) return "while it was loaded";
    if (!things.empty() && !things.back().checks.empty() && !things.back().checks.back().finding)
      return fmt::format("in '{}' of {} {}", things.back().checks.back().name, things.back().kind, things.back().name);
    return "between two checks";
  }
  int64_t count(Outcome outcome) const {
    int64_t n = 0;
    for (const Thing& t : things)
      for (const Check& c : t.checks) n += c.finding && c.finding->outcome == outcome;
    return n;
  }
};

// Writes the events of checks in the child process as JSON, one object per line.
class Telling final : public CheckLog {
 public:
  explicit Telling(const std::function<void(const std::string&)>& say) : say_(say) {}
  void begin(const std::string& check) override { tell({{"begin", check}}); }
  void alive() override {
    if (const auto now = std::chrono::steady_clock::now(); now - said_ >= kPulse) tell({{"alive", true}});
  }
  void end(const Finding& f) override {
    tell({{"end", static_cast<int>(f.outcome)}, {"text", f.text}, {"remedy", f.remedy}});
  }
  void tell(const json::object& o) {
    said_ = std::chrono::steady_clock::now();
    say_(valid_json(json::serialize(o)));
  }

 private:
  std::chrono::steady_clock::time_point said_{};
  const std::function<void(const std::string&)>& say_;
};

// Reads a line of the child process. Returns whether it adds a finding to the last item.
bool hear(const std::string& line, Examined& e) {
  const json::object o = json::parse(line).as_object();
  const auto text = [&](const char* key) { return std::string(o.at(key).as_string()); };
  if (o.contains("loaded")) return e.patience = plugin_patience(kChecking), e.loaded = true, false;
  if (o.contains("finished")) return e.finished = true, false;
  if (o.contains("alive")) return false;
  if (o.contains("name")) return e.things.push_back({text("kind"), text("name"), {}}), true;
  if (o.contains("begin")) return e.things.back().checks.push_back({text("begin"), std::nullopt}), false;
  if (o.contains("end")) {
    e.things.back().checks.back().finding =
        Finding{static_cast<Outcome>(o.at("end").as_int64()), text("text"), text("remedy")};
    return true;
  }
  e.error = text("error");
  for (const json::value& note : o.at("notes").as_array()) e.notes.emplace_back(note.as_string());
  return false;
}

// Registers items in the global registry, where bodies look up functionals, implementations the functionals that they
// compute, and exporters the importers of their files.
void make_known(Registry& registry) {
  for (const uint32_t kind : {HX_FUNCTIONAL, HX_IMPLEMENTATION, HX_IMPORTER})
    for (const std::string& name : registry.names(kind))
      Registry::global().add(std::const_pointer_cast<Item>(registry.find(kind, name)));
}

// Loads the library in a child process and, with settings, checks all items that it registers.
Examined examine(const std::string& path, const CheckSettings* settings,
                 const std::function<void(const Examined&)>& watch = {}) {
  Examined e;
  e.patience = plugin_patience(kLoading);
  e.end = in_child_process(
      [&](const std::function<void(const std::string&)>& say) {
        Telling telling(say);
        try {
          Registry registry;
          load_untried(path, registry);
          telling.tell({{"loaded", true}});
          if (settings) make_known(registry);
          for (const uint32_t kind : item_kinds())
            for (const std::string& name : registry.names(kind)) {
              telling.tell({{"kind", std::string(kind_name(kind))}, {"name", name}});
              if (settings) check_item(registry.find(kind, name), *settings, telling);
            }
          telling.tell({{"finished", true}});
        } catch (const Error& error) {
          json::array notes;
          for (const std::string& note : error.notes()) notes.emplace_back(note);
          telling.tell({{"error", error.what()}, {"notes", notes}});
        }
      },
      [&](const std::string& line) {
        if (hear(line, e) && watch) watch(e);
      },
      [&] { return e.patience; });
  return e;
}

const char* word_of(Outcome outcome) {
  return outcome == Outcome::Passed ? "ok" : outcome == Outcome::Failed ? "FAILED" : "note";
}

void print_newest(const Examined& e) {
  const Examined::Thing& t = e.things.back();
  if (t.checks.empty()) return print("{} {}\n", t.kind, t.name);
  const Finding& f = *t.checks.back().finding;
  print("  {:<7} {}{}{}\n", word_of(f.outcome), t.checks.back().name, f.text.empty() ? "" : ": ", f.text);
  if (!f.remedy.empty()) print("          {}\n", f.remedy);
  flush_output();
}

json::object json_of(const std::string& path, const Examined& e) {
  json::array items;
  for (const Examined::Thing& t : e.things) {
    json::array checks;
    for (const Examined::Check& c : t.checks) {
      const Finding f = c.finding.value_or(Finding{Outcome::Failed, e.broke_off(), ""});
      checks.push_back(json::object{{"check", c.name},
                                    {"outcome", f.outcome == Outcome::Passed   ? "passed"
                                                : f.outcome == Outcome::Failed ? "failed"
                                                                               : "noted"},
                                    {"text", f.text},
                                    {"remedy", f.remedy}});
    }
    items.push_back(json::object{{"kind", t.kind}, {"name", t.name}, {"checks", checks}});
  }
  const std::string broke = e.broke_off();
  json::object o{{"file", path}, {"items", items}, {"error", nullptr}};
  if (!e.error.empty())
    o["error"] = e.error;
  else if (!broke.empty())
    o["error"] = broke + " " + e.where();
  return o;
}

int check(const Options& options, const std::vector<std::string>& paths) {
  CheckSettings settings;
  settings.address = options.address;
  if (options.calls) settings.calls = *options.calls;
  settings.seed = static_cast<uint64_t>(options.run.seed.value_or(0));
  json::array files;
  int64_t failed = 0, passed = 0;
  for (const std::string& path : paths) {
    const Examined e = examine(path, &settings, options.json ? std::function<void(const Examined&)>() : print_newest);
    failed += e.count(Outcome::Failed);
    passed += e.count(Outcome::Passed);
    const std::string broke = e.broke_off();
    if (!e.error.empty() || !broke.empty()) ++failed;
    files.push_back(json_of(path, e));
    if (options.json) continue;
    if (!e.error.empty()) print_error(Error(ErrorKind::Plugin, e.error, {}, e.notes));
    if (!broke.empty())
      print_error(Error(ErrorKind::Plugin, fmt::format("plugin '{}' {} {}", path, broke, e.where()), {},
                        {"run it under a debugger: gdb --args harmonics list --plugin " + path}));
    if (e.finished && e.things.empty()) print("'{}' registers nothing\n", path);
  }
  if (options.json)
    print_json(json::object{{"version", 1}, {"passed", passed}, {"failed", failed}, {"files", files}});
  else
    print("{} passed, {} failed\n", passed, failed);
  return failed ? kFailed : kDone;
}

// The problem of a library with its remedies; `trouble` is empty if it loads.
struct Diagnosis {
  std::string path, id, version, trouble;
  std::vector<std::string> remedies, provides;
};

Diagnosis diagnose(const std::string& path) {
  Diagnosis d{path, "", "", "", {}, {}};
  try {
    std::error_code unreachable;
    if (!fs::exists(path, unreachable) && !unreachable) {
      const bool listed = fs::exists(fs::path(path).replace_extension(".manifest"), unreachable);
      throw Error(ErrorKind::NoInput, "there is no such file", {},
                  {listed ? "a manifest without its library: remove it, or put the library back"
                          : "give a plugin library, or a folder with plugin libraries"});
    }
    const hx_plugin_abi descriptor = read_descriptor(path);
    d.id = descriptor.id;
    d.version = descriptor.version;
    check_trust(path);
  } catch (const Error& e) {
    d.trouble = e.what();
    d.remedies = e.notes();
    return d;
  }
  const Examined e = examine(path, nullptr);
  for (const Examined::Thing& t : e.things) d.provides.push_back(t.kind + " " + t.name);
  d.trouble = e.error.empty() ? e.broke_off() : e.error;
  d.remedies = e.notes;
  if (e.error.empty() && !d.trouble.empty()) {
    d.trouble += " " + e.where();
    d.remedies = {"run it under a debugger: gdb --args harmonics list --plugin " + path};
  }
  if (d.trouble.empty() && e.things.empty())
    d.trouble = "registers nothing", d.remedies = {"call registry.register_...() in harmonics_register"};
  return d;
}

// Checks the manifest beside a library, which must list all items that the library provides.
void compare_manifest(Diagnosis& d) {
  const fs::path manifest = fs::path(d.path).replace_extension(".manifest");
  if (!d.trouble.empty()) return;
  if (std::error_code none; !fs::exists(manifest, none)) {
    d.trouble = "has no manifest, so only --plugin finds it";
    std::string lines;
    for (const std::string& p : d.provides) lines += (lines.empty() ? "" : "\\n") + p;
    d.remedies = {fmt::format("printf '{}\\n' > {}", lines, manifest.string())};
    return;
  }
  std::vector<std::string> announced;
  for (const auto& [kind, name] : read_manifest(manifest.string()))
    announced.push_back(std::string(kind_name(kind)) + " " + name);
  for (const std::string& p : d.provides)
    if (std::find(announced.begin(), announced.end(), p) == announced.end())
      d.remedies.push_back(fmt::format("add '{}' to {}", p, manifest.string()));
  for (const std::string& p : announced)
    if (std::find(d.provides.begin(), d.provides.end(), p) == d.provides.end())
      d.remedies.push_back(fmt::format("remove '{}' from {}", p, manifest.string()));
  if (!d.remedies.empty()) d.trouble = "registers other items than its manifest lists";
}

// Returns the libraries of a directory, including missing ones that a manifest names.
std::vector<std::string> libraries_of(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, none)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".so") found.push_back(path.string());
    if (path.extension() == ".manifest" && !fs::exists(fs::path(path).replace_extension(".so"), none))
      found.push_back(fs::path(path).replace_extension(".so").string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

int doctor(const Options& options, const std::vector<std::string>& paths) {
  std::vector<std::pair<std::string, bool>> libraries;  // path, and whether a manifest locates it
  const std::vector<std::string> places = paths.empty() ? plugin_search_path() : paths;
  for (const std::string& place : places) {
    std::error_code unreachable;
    const bool exists = fs::exists(place, unreachable);
    if (!options.json)
      print("{}{}\n", place,
            exists        ? ""
            : unreachable ? fmt::format(" (cannot be read: {})", unreachable.message())
                          : " (does not exist)");
    if (!fs::is_directory(place, unreachable))
      libraries.emplace_back(place, false);
    else
      for (const std::string& path : libraries_of(place)) libraries.emplace_back(path, true);
  }
  if (paths.empty())
    libraries.erase(std::remove_if(libraries.begin(), libraries.end(), [](const auto& l) { return !l.second; }),
                    libraries.end());
  json::array rows;
  int troubled = 0;
  std::map<std::string, std::string> first;  // the first library that announces a name
  for (const auto& [path, by_manifest] : libraries) {
    Diagnosis d = diagnose(path);
    if (by_manifest) compare_manifest(d);
    for (const std::string& p : d.provides) {
      const auto [at, fresh] = first.emplace(p, path);
      if (!fresh && by_manifest && d.trouble.empty())
        d.trouble = fmt::format("{} is used from {}", p, at->second),
        d.remedies = {"the first on the search path has it; --plugin wins over both"};
    }
    troubled += !d.trouble.empty();
    rows.push_back(json::object{{"file", d.path},
                                {"id", d.id},
                                {"plugin_version", d.version},
                                {"provides", json::value_from(d.provides)},
                                {"trouble", d.trouble.empty() ? json::value(nullptr) : json::value(d.trouble)},
                                {"remedies", json::value_from(d.remedies)}});
    if (options.json) continue;
    print("  {:<7} {}{}{}\n", d.trouble.empty() ? "ok" : "TROUBLE", fs::path(path).filename().string(),
          d.trouble.empty() ? ": " + quantity(d.provides.size(), "name") : ": ", d.trouble);
    for (const std::string& remedy : d.remedies) print("          {}\n", remedy);
  }
  if (options.json)
    print_json(json::object{{"version", 1}, {"libraries", rows}});
  else
    print("{}, {} with problems\n", quantity(libraries.size(), "library", "libraries"), troubled);
  return troubled ? kFailed : kDone;
}

int list(const Options& options) {
  json::array rows;
  std::string folder;
  for (const FoundPlugin& p : discover_plugins(plugin_search_path(), plugin_cache_path()).plugins) {
    json::array provides;
    for (const auto& [kind, name] : p.provides) provides.emplace_back(std::string(kind_name(kind)) + " " + name);
    rows.push_back(json::object{{"file", p.library},
                                {"id", p.id},
                                {"plugin_version", p.version},
                                {"provides", provides},
                                {"trouble", p.trouble.empty() ? json::value(nullptr) : json::value(p.trouble)}});
    if (options.json) continue;
    const fs::path path = p.library;
    if (folder != path.parent_path().string()) print("{}\n", folder = path.parent_path().string());
    if (!p.trouble.empty())
      print("  {:<32} {}\n", path.filename().string(), p.trouble);
    else if (!p.has_manifest)
      print("  {:<32} {} {}, without manifest: only --plugin finds it\n", path.filename().string(), p.id, p.version);
    else
      print("  {:<32} {} {}, {}\n", path.filename().string(), p.id, p.version, quantity(p.provides.size(), "name"));
  }
  if (options.json) print_json(json::object{{"version", 1}, {"libraries", rows}});
  return kDone;
}

// Sends the signal only to processes of this program, because it would end others.
int reload(const Options& options, const std::vector<std::string>& processes) {
  for (const std::string& text : processes) {
    const bool number = text.find_first_not_of("0123456789") == std::string::npos && text.size() < 10;
    std::error_code none, hidden;
    if (!number || !fs::exists("/proc/" + text, none))
      throw Error(ErrorKind::NoInput, fmt::format("there is no process '{}'", text), {}, {"pgrep harmonics"});
    const std::string program = fs::read_symlink("/proc/" + text + "/exe", hidden).filename().string();
    if (program.rfind("harmonics", 0) != 0)
      throw Error(ErrorKind::Usage, program.empty() ? fmt::format("process {} belongs to another user", text)
                                                    : fmt::format("process {} is '{}', not harmonics", text, program));
    if (::kill(std::stoi(text), SIGUSR1) != 0)
      throw Error(ErrorKind::Usage, fmt::format("cannot signal process {}: {}", text, std::strerror(errno)));
    if (!options.json && !options.quiet) print("reload requested from process {}; the run reports the changes\n", text);
  }
  if (options.json) print_json(json::object{{"version", 1}, {"processes", json::value_from(processes)}});
  return kDone;
}

void expect_some(const std::vector<std::string>& rest, const char* usage) {
  if (rest.empty()) throw Error(ErrorKind::Usage, "no file was given", {}, {usage});
}

}  // namespace

int plugin_command(const Options& options) {
  const std::string& action = options.files.front();
  const std::vector<std::string> rest(options.files.begin() + 1, options.files.end());
  if (action == "new") {
    if (rest.size() != 1)
      throw Error(ErrorKind::Usage, "'harmonics plugin new' takes one name", {},
                  {"harmonics plugin new my_act --kind activation"});
    return new_plugin(rest.front(), options);
  }
  if (action == "check") return expect_some(rest, "harmonics plugin check libmy_act.so"), check(options, rest);
  if (action == "doctor") return doctor(options, rest);
  if (action == "list") return list(options);
  if (action == "reload") {
    if (rest.empty())
      throw Error(ErrorKind::Usage, "no process was given", {}, {"harmonics plugin reload $(pgrep -x harmonics)"});
    return reload(options, rest);
  }
  Error e(ErrorKind::Usage, fmt::format("'harmonics plugin' does not accept '{}'", action));
  if (auto near = nearest(action, {"new", "check", "doctor", "list", "reload"}))
    e.note("did you mean '" + *near + "'?");
  else
    e.note("commands: new, check, doctor, list, reload");
  throw e;
}

}  // namespace harmonics::engine::cli
