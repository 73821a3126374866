// Formats --help: examples first, then the arguments and flags of a verb with their headings.
#include <algorithm>
#include <sstream>

#include <fmt/core.h>

#include "engine/cli/options/command_table.hpp"
#include "engine/cli/options/installed.hpp"

namespace harmonics::engine::cli {

namespace {

constexpr size_t kColumn = 32;  // column where help text starts

// Returns "  left        words of help,\n              wrapped".
std::string entry(const std::string& left, const std::string& help, size_t columns, size_t column = kColumn) {
  std::string text = "  " + left, line;
  if (text.size() + 2 > column)
    text += "\n" + std::string(column, ' ');
  else
    text += std::string(column - text.size(), ' ');
  std::istringstream words(help);
  bool first = true;
  for (std::string word; words >> word;) {
    if (!line.empty() && column + line.size() + 1 + word.size() > columns) {
      text += (first ? "" : std::string(column, ' ')) + line + "\n";
      first = false;
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return text + (first ? "" : std::string(column, ' ')) + line + "\n";
}

std::string indented(const std::string& text) {
  std::string s;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) s += "  " + line + "\n";
  return s;
}

std::string left_of(const FlagRow& f) {
  return (f.short_name.empty() ? "    --" : "-" + f.short_name + ", --") + f.name +
         (f.value.empty() ? "" : " " + f.value);
}

std::string usage(const VerbRow& verb) {
  std::string s = "harmonics " + verb.name;
  for (const PositionalRow& p : verb.positionals) {
    const std::string word = p.name + (p.repeats ? "..." : "");
    s += p.required ? " " + word : " [" + word + "]";
  }
  return s + " [flags]";
}

std::string help_of(const PositionalRow& p) {
  constexpr size_t kMostWords = 24;  // longer lists are shown by a separate command
  const std::vector<std::string> words = words_of(p);
  if (words.size() > kMostWords) return p.help;
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
  return words.empty() ? p.help : p.help + ": " + all;
}

}  // namespace

std::string verb_help(const VerbRow& verb, size_t columns) {
  std::string s = fmt::format("{}\n\nExamples:\n{}\nUsage: {}\n", verb.help, indented(verb.examples), usage(verb));
  for (const PositionalRow& p : verb.positionals) s += entry(p.name, help_of(p), columns);
  std::vector<std::string> groups;
  for (const FlagRow& f : verb.flags)
    if (std::find(groups.begin(), groups.end(), f.group) == groups.end()) groups.push_back(f.group);
  for (const std::string& group : groups) {
    s += "\n" + group + ":\n";
    for (const FlagRow& f : verb.flags)
      if (f.group == group)
        s += entry(left_of(f), full_help(f) + (f.repeats && !f.list ? "; may be given several times" : ""), columns);
  }
  return with_samples_folder(s + (verb.notes.empty() ? "" : "\n" + verb.notes + "\n"));
}

std::string program_help(const CommandTable& table, size_t columns) {
  constexpr size_t kNarrow = 15;
  std::string s =
      "Harmonics trains and serves neural models described as flows of streams.\n\n"
      "Start here:\n"
      "  harmonics run samples/mnist.hmx --producer synth:digits --producer 'synth:digits#label'\n"
      "  harmonics explain samples/mnist.hmx --producer synth:digits --producer 'synth:digits#label'\n"
      "  harmonics list functions        what a flow can be made of\n"
      "  harmonics run --help            every flag, with examples\n\n"
      "Usage: harmonics VERB [arguments] [flags]\n\nVerbs:\n";
  for (const VerbRow& verb : table) s += entry(verb.name, verb.help, columns, kNarrow);
  s += "\nFlags:\n" + entry("-h, --help", "this text; of a verb: harmonics VERB --help", columns) +
       entry("    --help-all", "help of every verb", columns) + entry("    --version", "print the version", columns);
  return with_samples_folder(std::move(s));
}

}  // namespace harmonics::engine::cli
