#include "engine/cli/settings_file.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/core.h>
#include <toml++/toml.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"

namespace harmonics::cli {

namespace {

// toml++ 3.3 takes for granted that a table's name begins as a name does ("[=]") and that what is neither text nor comment is ASCII.
// What breaks that, and texts over several lines, which no setting needs, are refused before it reads.
class FirstLook {
 public:
  FirstLook(const std::string& text, const std::string& path) : text_(text), path_(path) {}

  void run() {
    bool begins = true;  // nothing but blanks since the line began
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '"' || c == '\'') {
        quoted(c);
        begins = false;
      } else {
        if (static_cast<unsigned char>(c) >= 0x80) refuse("a character beyond ASCII that is in no text", "names are those of verbs and flags; texts stand in quotes");
        if (begins && c == '[') table();
        begins = (c >= '\n' && c <= '\r') || (begins && (c == ' ' || c == '\t'));
        line_ += c == '\n';
        ++at_;
      }
    }
  }

 private:
  [[noreturn]] void refuse(const char* what, const char* remedy) const { throw Error(ErrorKind::Syntax, fmt::format("{}:{}: {}", path_, line_, what), {}, {remedy}); }

  size_t after_blanks(size_t at) const {
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return at;
  }

  void table() const {
    size_t name = after_blanks(at_ + 1);
    if (name < text_.size() && text_[name] == '[') name = after_blanks(name + 1);
    const auto c = static_cast<unsigned char>(name < text_.size() ? text_[name] : ']');
    if (!std::isalnum(c) && std::string("_-\"']").find(static_cast<char>(c)) == std::string::npos) refuse("a table without a name", "[run] begins the settings of 'harmonics run'");
  }

  // Past the text that begins here, or to the end of its line.
  void quoted(char quote) {
    if (text_.compare(at_, 3, std::string(3, quote)) == 0) refuse("a text over several lines", "one quote on each side: no setting is that long");
    for (++at_; at_ < text_.size() && text_[at_] != '\n'; ++at_) {
      if (text_[at_] == '\\' && quote == '"') ++at_;
      else if (text_[at_] == quote) return void(++at_);
    }
  }

  const std::string &text_, &path_;
  size_t at_ = 0, line_ = 1;
};

class FileReader {
 public:
  FileReader(const CommandTable& table, const std::string& path) : table_(table), path_(path) {}

  SettingsLayer run(const std::string& text) {
    FirstLook(text, path_).run();
    toml::table root;
    try {
      root = toml::parse(text, path_);
    } catch (const toml::parse_error& e) {
      throw Error(ErrorKind::Syntax, fmt::format("{}: {}", place(e.source()), e.description()), {}, {"settings are written as in TOML: batch = 128, and [run] before those of one verb"});
    }
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      if (const toml::table* section = node.as_table()) name == "override" ? overrides(*section) : verb(name, *section, node.source());
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

  // [override] attention = "mine" is --override attention=mine of every verb.
  void overrides(const toml::table& section) {
    for (const auto& [key, node] : section) {
      const auto* text = node.as_string();
      if (!text) throw Error(ErrorKind::Type, fmt::format("{}: '{}' of [override] is the name of an implementation, in quotes", place(node.source()), std::string(key.str())));
      Setting& all = settings_[{"", "override"}];
      if (all.origin.empty()) all.origin = place(node.source());
      all.values.push_back(std::string(key.str()) + "=" + text->get());
    }
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
