// The table of verbs. Dispatch, --help, completion, manual pages, configuration files and the list of schemas are
// generated from it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace harmonics::engine::cli {

struct Options;

struct FlagRow {
  std::string name, short_name;  // "batch", "b" (or "")
  std::string value;             // placeholder of its value in help; "": a switch
  std::string help, group;
  bool repeats = false;
  std::vector<std::string> choices;  // all permitted values; empty: all that `take` accepts
  std::string initial = {};          // default value; "": none, or described in `help`
  std::string example = {};          // a valid value, for messages; "": `initial`
  bool list = false;                 // one word may have several values: "1,64"
  bool optional = false;             // the flag may be given without a value
  bool required = false;
  std::vector<std::string> (*names)() = nullptr;  // registered names as values for help and completion
  std::function<void(const FlagRow&, Options&, const std::string&)> take = {};  // throws ErrorKind::Usage
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
  std::string schema = "";                           // schema of the --json output: a file in docs/schema
  std::string alias = "";                            // another name of the verb
  std::vector<std::string> (*settings)() = nullptr;  // names that --set accepts, for messages

  const FlagRow* find(const std::string& flag) const;
};

using CommandTable = std::vector<VerbRow>;
std::vector<std::string> names_of(const CommandTable& table);

// Return the possible values of a flag or a positional argument, from its choices or from registered names. Empty if
// all values are possible.
std::vector<std::string> words_of(const FlagRow& flag);
std::vector<std::string> words_of(const PositionalRow& positional);
// Returns the help text of a flag with registered names and default value.
std::string full_help(const FlagRow& flag);

// Returns the completion script for bash, zsh or fish. Throws ErrorKind::Usage for other shells.
std::string completion_script(const CommandTable& table, const std::string& shell);
// Returns the manual page (man(7)) of the program (""), of a verb, or of the flow language ("hmx"). Throws
// ErrorKind::Usage for other words.
std::string man_page(const CommandTable& table, const std::string& page);
// Return the help of the program and of a verb as plain text.
std::string program_help(const CommandTable& table, size_t columns);
std::string verb_help(const VerbRow& verb, size_t columns);

}  // namespace harmonics::engine::cli
