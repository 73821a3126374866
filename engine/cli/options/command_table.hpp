// The table of verbs, one row each. Dispatch, --help, completion, manual pages, configuration files and the list of
// schemas are made from it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace harmonics::engine::cli {

struct Options;

struct FlagRow {
  std::string name, short_name;  // "batch", "b" (or "")
  std::string value;             // name of its value in help; "": a switch
  std::string help, group;
  bool repeats = false;
  std::vector<std::string> choices;  // all permitted values; empty: anything that `take` accepts
  std::string initial = {};          // the default value; "": none, or help describes it
  std::string example = {};          // a valid value, for messages; "": `initial`
  bool list = false;                 // "1,64": several values in one word
  bool optional = false;             // the flag may be given without a value
  bool required = false;
  std::vector<std::string> (*names)() = nullptr;  // registered names: values for help and completion
  std::function<void(const FlagRow&, Options&, const std::string&)> take = {};  // ErrorKind::Usage for a wrong value
};

struct PositionalRow {
  std::string name, help;
  bool required = false, repeats = false;
  std::vector<std::string> choices;
  std::vector<std::string> (*names)() = nullptr;
};

struct VerbRow {
  std::string name, help, examples;
  std::vector<PositionalRow> positionals;
  std::vector<FlagRow> flags;
  std::string notes = "";  // additional notes
  int (*run)(const Options&) = nullptr;
  std::string schema = "";                           // of the output of --json: a file in docs/schema
  std::string alias = "";                            // another word for it
  std::vector<std::string> (*settings)() = nullptr;  // names that --set takes, for messages

  const FlagRow* find(const std::string& flag) const;
};

using CommandTable = std::vector<VerbRow>;
std::vector<std::string> names_of(const CommandTable& table);

// Returns the possible values of a flag or a positional word, from its choices or from registered names. Empty: any
// value.
std::vector<std::string> words_of(const FlagRow& flag);
std::vector<std::string> words_of(const PositionalRow& positional);
// Returns the help text with the registered names and the default value.
std::string full_help(const FlagRow& flag);

// Scripts for bash, zsh and fish; ErrorKind::Usage for other shells.
std::string completion_script(const CommandTable& table, const std::string& shell);
// roff (man(7)): of the program (""), of one verb, or of the flow language ("hmx"); ErrorKind::Usage for other words.
std::string man_page(const CommandTable& table, const std::string& page);
// Plain text: of the program, or of one verb.
std::string program_help(const CommandTable& table, size_t columns);
std::string verb_help(const VerbRow& verb, size_t columns);

}  // namespace harmonics::engine::cli
