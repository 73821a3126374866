// The command line as a table: what --help, completion, man pages and configuration files are made from.
#pragma once

#include <string>
#include <vector>

namespace harmonics::cli {

struct FlagRow {
  std::string name, short_name;  // "batch", "b" (or "")
  std::string value;             // what stands for its value in help; "": a switch
  std::string help, group;
  bool repeats = false;
  std::vector<std::string> choices;
};

struct PositionalRow {
  std::string name, help;
  bool required = false, repeats = false;
  std::vector<std::string> choices;
};

struct VerbRow {
  std::string name, help, examples;
  std::vector<PositionalRow> positionals;
  std::vector<FlagRow> flags;

  const FlagRow* find(const std::string& flag) const;
};

using CommandTable = std::vector<VerbRow>;
const CommandTable& command_table();

// Scripts for bash, zsh and fish; ErrorKind::Usage for other shells.
std::string completion_script(const CommandTable& table, const std::string& shell);
// roff (man(7)): of the program ("") or of one verb; ErrorKind::Usage for other words.
std::string man_page(const CommandTable& table, const std::string& verb);

}  // namespace harmonics::cli
