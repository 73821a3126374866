#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <string_view>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "dsl/hmx/lexer.hpp"
#include "engine/base/file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/commands/plugin.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine::cli {

namespace fs = std::filesystem;

namespace {

struct Kind {
  const char *name, *article;
  const char *streams, *more = "";  // arguments of the sample flow: {} is the plugin's name
  const char* provides = "{}";      // the registered name
  const char* verb = "run";         // verb that runs the sample
  const char* sample = "hmx";       // file extension of the sample
};
constexpr const char *kImage = "--producer image=synth:digits?size=2000",
                     *kDigits = "--producer image=synth:digits?size=2000 --producer digit=synth:digits?size=2000#label";
constexpr Kind kKinds[] = {
    {"activation", "An", kDigits},
    {"loss", "A", kImage},
    {"layer", "A", kDigits},
    {"producer", "A", "--producer here={}:0 --producer there={}:1"},
    {"consumer", "A", "--producer image=synth:digits?size=10 --consumer drawn={}:"},
    {"metric", "A", kDigits, " --metric {}"},
    {"functional", "A", kDigits},
    {"implementation", "An", kDigits, " --override silu={}", "silu.{}"},
    {"device", "A", kDigits, " --device {}"},
    {"optimizer", "An", kDigits, " --optimizer {}(lr=0.02)"},
    {"schedule", "A", kDigits, " --schedule {}(every=8)"},
    {"predicate", "A", kDigits},
    {"augmentation", "An",
     "--producer image=synth:digits?size=2000&augment={}(0.2) --producer digit=synth:digits?size=2000#label"},
    {"importer", "An", "", "", "{}", "inspect", "letters"},
    {"tokenizer", "A", "", "", "{}", "inspect", "words"},
    {"exporter", "An", kDigits, " --save weights.safetensors"},
    {"policy", "A", kDigits, " --precision-policy {}(least=64)"}};

const Kind& kind_of(const std::string& word) {
  std::vector<std::string> known;
  for (const Kind& k : kKinds) {
    if (word == k.name) return k;
    known.emplace_back(k.name);
  }
  Error e(ErrorKind::Usage,
          word.empty() ? "which kind of plugin?" : fmt::format("there is no kind of plugin '{}'", word));
  if (auto near = nearest(word, known); !word.empty() && near)
    e.note("did you mean '" + *near + "'?");
  else {
    std::string all;
    for (const std::string& k : known) all += (all.empty() ? "" : "|") + k;
    e.note("--kind " + all);
  }
  throw e;
}

// Targets of CMake's own, which no library can be named after.
constexpr std::string_view kBuildTargets[] = {"all",        "clean",         "depend",  "edit_cache",
                                              "help",       "install",       "package", "package_source",
                                              "preinstall", "rebuild_cache", "test"};

void check_name(const std::string& name) {
  bool good = !name.empty() && (std::isalpha(static_cast<unsigned char>(name[0])) || name[0] == '_');
  for (const char c : name) good = good && (std::isalnum(static_cast<unsigned char>(c)) || c == '_');
  if (!good)
    throw Error(ErrorKind::Usage, fmt::format("'{}' is not a plugin name", name), {},
                {"letters, digits and '_', beginning with a letter: it names a C++ class and is used in flows"});
  const bool of_build = std::find(std::begin(kBuildTargets), std::end(kBuildTargets), name) != std::end(kBuildTargets);
  if (of_build || hmx::is_reserved(name))
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' is {} and cannot name a plugin", name,
                            of_build ? "a target of CMake's" : "a reserved word of flows"),
                {}, {fmt::format("choose another name, for example 'my_{}'", name)});
}

// Returns "MyAct" for "my_act".
std::string camel_case(const std::string& name) {
  std::string result;
  bool up = true;
  for (const char c : name) {
    if (c == '_')
      up = true;
    else
      result += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c, up = false;
  }
  return result.empty() || std::isdigit(static_cast<unsigned char>(result[0])) ? "Plugin" + result : result;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

std::string filled(const std::string& name, const std::map<std::string, std::string>& words) {
  for (unsigned i = 0; i < kTemplateCount; ++i) {
    if (name != kTemplates[i].name) continue;
    std::string text = kTemplates[i].text;
    for (const auto& [word, by] : words) text = replaced(std::move(text), "@" + word + "@", by);
    return text;
  }
  throw Error(ErrorKind::Internal, "there is no template '" + name + "'");
}

// Returns the class of a plugin, a word that its template does not use.
std::string class_name(const std::string& name, const std::string& template_file) {
  const std::string text = filled(template_file, {});
  const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const auto used = [&](const std::string& word) {
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size())
      if ((at == 0 || !in_word(text[at - 1])) && !in_word(text[at + word.size()])) return true;
    return false;
  };
  std::string result = camel_case(name);
  while (used(result)) result += "Plugin";
  return result;
}

// Quotes each argument of a command that contains one of the `special` characters.
std::string quoted(const std::string& arguments, const char* special, char quote) {
  std::string result;
  for (size_t at = 0; at < arguments.size();) {
    const size_t end = std::min(arguments.find(' ', at), arguments.size());
    const std::string word = arguments.substr(at, end - at);
    result +=
        (result.empty() ? "" : " ") + (word.find_first_of(special) == std::string::npos ? word : quote + word + quote);
    at = end + 1;
  }
  return result;
}

}  // namespace

int new_plugin(const std::string& name, const Options& options) {
  const Kind& kind = kind_of(options.kind);
  check_name(name);
  const fs::path folder = options.directory.empty() ? fs::path(name) : fs::path(options.directory);
  const std::string arguments = replaced(std::string(kind.streams) + kind.more, "{}", name);
  const std::map<std::string, std::string> words = {
      {"name", name},
      {"Name", class_name(name, std::string(kind.name) + ".cpp")},
      {"kind", kind.name},
      {"article", kind.article},
      {"release", HARMONICS_RELEASE},
      {"verb", kind.verb},
      {"sample", std::string("sample.") + kind.sample},
      {"provided", replaced(kind.provides, "{}", name)},
      {"arguments", quoted(arguments, "#()", '"')},
      {"shown", (arguments.empty() ? "" : " ") + quoted(arguments, "?#&()", '\'')}};
  const std::vector<std::pair<std::string, std::string>> files = {
      {"CMakeLists.txt", "CMakeLists.txt"},
      {name + ".cpp", std::string(kind.name) + ".cpp"},
      {words.at("sample"), std::string(kind.name) + "." + kind.sample},
      {"README.md", "README.md"}};
  for (const auto& [file, from] : files)
    if (std::error_code none; fs::exists(fs::symlink_status(folder / file, none)))
      throw Error(ErrorKind::Output, fmt::format("'{}' is already there", (folder / file).string()), {},
                  {"choose another name, or --directory"});
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed)
    throw Error(ErrorKind::Output, fmt::format("'{}' cannot be created: {}", folder.string(), failed.message()));
  boost::json::array written;
  for (const auto& [file, from] : files) {
    write_file_atomically((folder / file).string(), filled(from, words));
    written.emplace_back((folder / file).string());
    if (!options.json && !options.quiet) print("{}\n", (folder / file).string());
  }
  if (options.json)
    print_json(boost::json::object{{"version", 1}, {"files", written}});
  else if (!options.quiet)
    print("\ncmake -S {0} -B {0}/build && cmake --build {0}/build && ctest --test-dir {0}/build\n", folder.string());
  return kDone;
}

}  // namespace harmonics::engine::cli
