// Parses the command line by the table of verbs.
#include "engine/cli/options/options.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "engine/cli/options/command_table.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/options/configuration.hpp"
#include "engine/cli/options/flags.hpp"
#include "engine/cli/options/hub_name.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

// Returns the columns of help: the terminal's width within readable limits, or 100 without a terminal.
size_t help_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 100;
  return std::clamp<size_t>(size.ws_col, 60, 120);
}

bool is_help(const std::string& word) { return word == "--help" || word == "-h"; }

bool is_flag(const std::string& word) {
  if (word.size() > 2 && word[0] == '-' && word[1] == '-')
    return std::isalpha(static_cast<unsigned char>(word[2])) != 0;
  return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1]));
}

// Returns a hint if the first word is not a verb but suggests another command.
std::string remark_on(const std::vector<std::string>& words) {
  const std::string& word = words.front();
  if (word == "pull" || word == "download") {
    const std::string known = words.size() > 1 ? download_command(words[1]) : "";
    return "models are not downloaded automatically; to download one: " +
           (known.empty() ? "hf download OWNER/NAME --include '*Q4_K_M*.gguf' --local-dir NAME" : known);
  }
  if (word == "test" || word == "eval" || word == "evaluate")
    return "saved weights are tested by: harmonics run GRAPH --weights FILE --epochs 0 --producer ADDRESS --test "
           "ADDRESS";
  if (word == "help") return "help is a flag: harmonics VERB --help";
  if (word.ends_with(".hmx")) return "the verb comes first: harmonics run " + quoted(word);
  if (is_flag(word)) return "flags follow the verb: harmonics VERB " + word;
  return "";
}

// Flags of other programs and their equivalents here, used if the verb has no flag of that name.
struct FlagSynonym {
  const char *word, *flag;
};
constexpr FlagSynonym kFlagSynonyms[] = {{"engine", "device"}};

class ArgumentReader {
 public:
  ArgumentReader(const CommandTable& table, const VerbRow& verb, Options& options, std::vector<std::string> words)
      : table_(table), verb_(verb), options_(options), words_(std::move(words)) {}

  // Returns false if help is requested.
  bool read() {
    if (asks_for_help()) return false;
    for (; at_ < words_.size(); ++at_) {
      const std::string& word = words_[at_];
      if (!plain_ && word == "--")
        plain_ = true;
      else if (!plain_ && is_flag(word))
        flag(word);
      else
        positional(word);
    }
    expect_all();
    return true;
  }

  // Returns notes about flags that were given by another name.
  const std::vector<std::string>& notes() const { return notes_; }
  bool was_given(const FlagRow& flag) const { return given_.count(flag.name) != 0; }
  std::set<std::string> names_given() const {
    std::set<std::string> names;
    for (const auto& [name, value] : given_) names.insert(name);
    return names;
  }

 private:
  // Finds --help anywhere before "--".
  bool asks_for_help() const {
    for (size_t i = 0; i < words_.size() && words_[i] != "--"; ++i)
      if (is_help(words_[i])) return true;
    return false;
  }

  [[noreturn]] void refuse(Error e) const { throw e.note("'harmonics " + verb_.name + " --help' shows what it takes"); }

  const FlagRow* find_synonym(const std::string& word) {
    for (const FlagSynonym& synonym : kFlagSynonyms)
      if (word == synonym.word)
        if (const FlagRow* row = verb_.find(synonym.flag)) {
          notes_.push_back(fmt::format("--{} is --{} here", synonym.word, synonym.flag));
          return row;
        }
    return nullptr;
  }
  const FlagRow* find_short(char name) const {
    for (const FlagRow& f : verb_.flags)
      if (f.short_name == std::string(1, name)) return &f;
    return nullptr;
  }

  // `given`: the word as it was given, which may be the name of a file.
  [[noreturn]] void unknown(const std::string& word, const std::string& given) const {
    std::vector<std::string> known;
    for (const FlagRow& f : verb_.flags) known.push_back("--" + f.name);
    Error e(ErrorKind::Usage, fmt::format("'{}' has no flag {}", verb_.name, word));
    std::error_code failed;
    if (std::filesystem::exists(given, failed)) throw e.note(fmt::format("for the file of this name: ./{}", given));
    const std::string name = word.substr(std::min<size_t>(2, word.size()));
    std::vector<std::string> others;
    for (const VerbRow& other : table_)
      if (other.find(name)) others.push_back("'" + other.name + "'");
    std::string dashed = word;  // "--batch_size"
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    std::string setting = name;  // "--learning-rate"
    std::replace(setting.begin(), setting.end(), '-', '_');
    const std::vector<std::string> settings = verb_.settings ? verb_.settings() : std::vector<std::string>();
    if (std::find(settings.begin(), settings.end(), setting) != settings.end())
      e.note(fmt::format("it is a key of the configuration: --set {}=VALUE", setting));
    else if (const std::string meant = did_you_mean(dashed, known); !meant.empty())
      e.note(meant);
    else if (!others.empty() && others.size() <= 4)
      e.note("note: it is a flag of " + joined(others));
    refuse(std::move(e));
  }

  static std::string joined(const std::vector<std::string>& words) {
    std::string s;
    for (size_t i = 0; i < words.size(); ++i) s += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
    return s;
  }

  void flag(const std::string& word) {
    const bool is_long = word[1] == '-';
    const size_t equals = word.find('=');
    const FlagRow* row = is_long ? verb_.find(word.substr(2, equals - 2)) : find_short(word[1]);
    if (!row && is_long) row = find_synonym(word.substr(2, equals - 2));
    if (!row) unknown(is_long ? word.substr(0, equals) : word.substr(0, 2), word);
    if (is_long)
      return value_of(*row, equals == std::string::npos ? std::nullopt : std::optional(word.substr(equals + 1)));
    if (row->value.empty() && word.size() > 2) unknown(word, word);
    value_of(*row, word.size() > 2 ? std::optional(word.substr(2)) : std::nullopt);
  }

  void value_of(const FlagRow& row, std::optional<std::string> value) {
    if (row.value.empty()) return give_to(row, value.value_or("true"));
    if (!value && takes_next(row)) value = words_[++at_];
    if (!value && !row.optional) {
      Error e(ErrorKind::Usage, fmt::format("--{} lacks its {}", row.name, row.value));
      const std::string& example = row.example.empty() ? row.initial : row.example;
      if (at_ + 1 < words_.size())
        e.note(fmt::format("'{}' is read as a flag; a value that begins so is written --{}={}", words_[at_ + 1],
                           row.name, quoted(words_[at_ + 1])));
      else if (!example.empty())
        e.note(fmt::format("for instance --{} {}", row.name, example));
      refuse(std::move(e));
    }
    // As a shell passes an unset variable: --weights "$FILE".
    const bool is_path =
        row.value.starts_with("FILE") || row.value == "DIR" || row.value == "PATH" || row.value == "MODEL";
    if (value && value->empty() && is_path)
      refuse(Error(ErrorKind::Usage, fmt::format("--{} lacks its {}: the value is empty", row.name, row.value)));
    give_to(row, value.value_or(""));
  }

  bool takes_next(const FlagRow& row) const {
    if (at_ + 1 >= words_.size() || is_flag(words_[at_ + 1])) return false;
    return !row.optional || words_.size() - at_ - 1 > missing();
  }

  void give_to(const FlagRow& row, const std::string& value) {
    const auto [seen, first] = given_.emplace(row.name, value);
    if (!first && !row.repeats && !row.value.empty())
      refuse(
          Error(ErrorKind::Usage, fmt::format("--{} is given twice: '{}' and '{}'", row.name, seen->second, value), {},
                {row.list ? fmt::format("write --{} {},{}", row.name, seen->second, value) : "leave one of them out"}));
    try {
      give(row, options_, value);
    } catch (const Error& e) {
      refuse(e);
    }
    last_ = &row;
  }

  size_t missing() const {
    size_t n = 0;
    for (size_t i = options_.files.size(); i < verb_.positionals.size(); ++i) n += verb_.positionals[i].required;
    return n;
  }

  void positional(const std::string& word) {
    const size_t n = options_.files.size();
    const std::vector<PositionalRow>& rows = verb_.positionals;
    const PositionalRow* row = n < rows.size()                        ? &rows[n]
                               : rows.empty() || !rows.back().repeats ? nullptr
                                                                      : &rows.back();
    if (!row) one_too_many(word);
    if (!row->choices.empty() && std::find(row->choices.begin(), row->choices.end(), word) == row->choices.end()) {
      Error e(ErrorKind::Usage, fmt::format("'harmonics {}' does not accept '{}'", verb_.name, word));
      const std::string meant = did_you_mean(word, row->choices);
      e.note(!meant.empty() ? meant : row->name + " is " + either(row->choices));
      refuse(std::move(e));
    }
    options_.files.push_back(word);
    last_ = nullptr;
  }

  [[noreturn]] void one_too_many(const std::string& word) const {
    std::string takes;
    for (const PositionalRow& p : verb_.positionals) takes += (takes.empty() ? "" : " ") + p.name;
    Error e(ErrorKind::Usage,
            verb_.positionals.empty()
                ? fmt::format("'{}' takes only flags, but '{}' is not a flag", verb_.name, word)
                : fmt::format("'{}' takes {}, and '{}' is an extra argument", verb_.name, takes, word));
    if (last_ && last_->list)
      e.note(fmt::format("values of --{} are separated by commas: --{} {},{}", last_->name, last_->name,
                         given_.at(last_->name), word));
    else if (last_ && last_->repeats)
      e.note(fmt::format("repeat the flag for each value: --{} {}", last_->name, quoted(word)));
    else if (word.find('=') != std::string::npos && verb_.find("producer"))
      e.note("data is bound by a flag: --producer " + quoted(word));
    else if (word.find('=') != std::string::npos && verb_.find("set"))
      e.note("a value is set by a flag: --set " + quoted(word));
    refuse(std::move(e));
  }

  void expect_all() const {
    const size_t n = options_.files.size();
    if (n < verb_.positionals.size() && verb_.positionals[n].required) {
      const PositionalRow& row = verb_.positionals[n];
      refuse(Error(ErrorKind::Usage, fmt::format("'{}' lacks {}: {}", verb_.name, row.name, row.help), {},
                   {row.choices.empty() ? first_example() : row.name + " is " + either(row.choices)}));
    }
    for (const FlagRow& f : verb_.flags)
      if (f.required && !was_given(f))
        refuse(Error(ErrorKind::Usage, fmt::format("'{}' lacks --{} {}: {}", verb_.name, f.name, f.value, f.help), {},
                     {first_example()}));
  }

  // Returns the first example command of the verb.
  std::string first_example() const {
    const std::string begin = "harmonics " + verb_.name;
    const size_t at = verb_.examples.find(begin);
    if (at == std::string::npos) return begin;
    return "for instance " + verb_.examples.substr(at, verb_.examples.find_first_of("\\\n", at) - at);
  }

  const CommandTable& table_;
  const VerbRow& verb_;
  Options& options_;
  const std::vector<std::string> words_;
  size_t at_ = 0;
  bool plain_ = false;                        // after "--"
  std::map<std::string, std::string> given_;  // first values
  std::vector<std::string> notes_;
  const FlagRow* last_ = nullptr;  // flag whose value was the previous word
};

// Returns "batch = 128".
std::string assignment(const std::string& flag, const FlagSetting& setting) {
  std::string values;
  for (const std::string& value : setting.values) values += (values.empty() ? "" : ", ") + value;
  return flag + " = " + values;
}

// Sets flags that were not given from the configuration. Returns notes about settings from ./harmonics.toml, because
// the user did not name this file.
std::vector<std::string> configure(const CommandTable& table, const VerbRow& verb, const ArgumentReader& arguments,
                                   Options& o) {
  const Configuration configuration =
      Configuration::read(table, o.config.empty() ? std::nullopt : std::optional(o.config));
  std::vector<std::string> notes = configuration.notes();
  std::string taken;
  bool quiet_here = false;
  for (const FlagRow& flag : verb.flags) {
    if (arguments.was_given(flag) || !is_configurable(flag)) continue;
    const FlagSetting* setting = configuration.find(verb.name, flag.name);
    if (!setting) {
      if (flag.list && !flag.initial.empty()) give(flag, o, flag.initial);
      continue;
    }
    try {
      for (const std::string& value : setting->values) give(flag, o, value);
    } catch (const Error& e) {
      Error of_setting(ErrorKind::Type, fmt::format("{}: {}", setting->origin, e.what()), {}, e.notes());
      throw of_setting.note("'harmonics " + verb.name + " --help' explains --" + flag.name);
    }
    if (!Configuration::is_from_here(*setting)) continue;
    quiet_here |= flag.name == "quiet";
    taken += (taken.empty() ? "" : ", ") + assignment(flag.name, *setting);
  }
  if (!taken.empty()) notes.push_back("./harmonics.toml sets " + taken);
  if (o.quiet && !quiet_here) notes.clear();
  return notes;
}

const VerbRow& verb_typed(const CommandTable& table, const std::vector<std::string>& words) {
  const std::string& word = words.front();
  for (const VerbRow& row : table)
    if (row.name == word || (!row.alias.empty() && row.alias == word)) return row;
  Error e(ErrorKind::Usage,
          is_flag(word) ? fmt::format("'{}' is before the verb", word) : fmt::format("there is no verb '{}'", word));
  if (const std::string meant = did_you_mean(word, names_of(table)); !meant.empty()) e.note(meant);
  if (const std::string remark = remark_on(words); !remark.empty()) e.note(remark);
  throw e.note("'harmonics --help' shows the verbs");
}

// Prints help or the version if requested. Returns whether it did.
bool print_about(const CommandTable& table, const std::string& word) {
  if (word == "--version")
    print("harmonics {}\n", HARMONICS_VERSION);
  else if (is_help(word))
    print("{}", program_help(table, help_columns()));
  else if (word == "--help-all")
    for (const VerbRow& row : table) print("{}\n", verb_help(row, help_columns()));
  else
    return false;
  return true;
}

}  // namespace

const VerbRow* parse_options(const CommandTable& table, int argc, char** argv, Options& o) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (words.empty())
    throw Error(ErrorKind::Usage, "no verb is given", {},
                {"train a flow: harmonics run GRAPH --producer ADDRESS", "'harmonics --help' shows the verbs"});
  if (print_about(table, words.front())) return nullptr;
  const VerbRow& verb = verb_typed(table, words);
  ArgumentReader arguments(table, verb, o, {words.begin() + 1, words.end()});
  if (!arguments.read()) {
    print("{}", verb_help(verb, help_columns()));
    return nullptr;
  }
  o.verb = verb.name;
  o.command_line.assign(argv, argv + argc);
  o.given = arguments.names_given();
  std::vector<std::string> notes = configure(table, verb, arguments, o);
  if (!o.quiet) notes.insert(notes.begin(), arguments.notes().begin(), arguments.notes().end());
  use_colours(o.color);
  for (const std::string& note : notes) print_note(note);
  return &verb;
}

}  // namespace harmonics::engine::cli
