// Generates manual pages from the table of verbs, the tables of exit codes, variables and addresses, and the
// description of the flow language.
#include <algorithm>
#include <cctype>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "engine/cli/options/command_table.hpp"
#include "engine/cli/options/manual.hpp"
#include "engine/cli/options/roff.hpp"

namespace harmonics::engine::cli {

namespace {

std::string in_capitals(std::string s) {
  for (char& c : s) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return s;
}

std::string head(const std::string& name, int section, const std::string& help) {
  return fmt::format(".TH {} {} \"\" \"Harmonics {}\" \"Harmonics\"\n.SH NAME\n{} \\- {}\n",
                     in_capitals(roff_text(name)), section, HARMONICS_VERSION, roff_text(name), roff_text(help));
}

std::string flag_text(const FlagRow& f) {
  std::string s = "\\fB\\-\\-" + roff_text(f.name) + "\\fR";
  if (!f.short_name.empty()) s = "\\fB\\-" + roff_text(f.short_name) + "\\fR, " + s;
  if (!f.value.empty()) s += " \\fI" + roff_text(f.value) + "\\fR";
  return fmt::format(".TP\n{}\n{}\n", s,
                     roff_text(full_help(f) + (f.repeats && !f.list ? "; may be given several times" : "")));
}

std::string options(const VerbRow& verb) {
  std::vector<std::string> groups;
  for (const FlagRow& f : verb.flags)
    if (std::find(groups.begin(), groups.end(), f.group) == groups.end()) groups.push_back(f.group);
  std::string s = ".SH OPTIONS\n";
  for (const std::string& group : groups) {
    if (group != "Options") s += ".SS " + roff_text(group) + "\n";
    for (const FlagRow& f : verb.flags)
      if (f.group == group) s += flag_text(f);
  }
  return s;
}

std::string synopsis(const VerbRow& verb) {
  std::string s = "\\fBharmonics " + roff_text(verb.name) + "\\fR", words;
  for (const PositionalRow& p : verb.positionals) {
    const std::string name = "\\fI" + p.name + "\\fR" + (p.repeats ? " ..." : "");
    s += p.required ? " " + name : " [" + name + "]";
    words += fmt::format(".TP\n\\fI{}\\fR\n{}\n", p.name, roff_text(p.help));
  }
  return ".SH SYNOPSIS\n" + s + " [\\fIoptions\\fR]\n" + (words.empty() ? "" : ".SH ARGUMENTS\n" + words);
}

std::string verbatim(const std::string& heading, const std::string& text) {
  return ".SH " + heading + "\n.nf\n" + roff_text(text) + "\n.fi\n";
}

std::string listed(const char* heading, std::span<const ManualRow> rows, const char* verb = "") {
  std::string s = std::string(".SH ") + heading + "\n";
  const std::string only = verb;
  for (const ManualRow& row : rows)
    if (only.empty() || row.everywhere)
      s += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff_text(row.name), roff_text(row.help));
  return s;
}

bool takes_addresses(const VerbRow& verb) {
  return std::any_of(verb.flags.begin(), verb.flags.end(),
                     [](const FlagRow& f) { return f.value == "[NAME=]ADDRESS"; });
}

std::string see_also(const std::string& pages) { return ".SH SEE ALSO\n" + pages + "\n"; }

std::string verb_page(const VerbRow& v) {
  std::string s = head("harmonics-" + v.name, 1, v.help) + synopsis(v);
  if (!v.notes.empty()) s += verbatim("NOTES", v.notes);
  s += verbatim("EXAMPLES", v.examples) + options(v);
  if (takes_addresses(v)) s += listed("ADDRESSES", address_rows()) + ".PP\n" + roff_text(kAddressNotes) + "\n";
  s += listed("EXIT STATUS", exit_rows()) + listed("ENVIRONMENT", variable_rows(), v.name.c_str());
  return s + see_also("\\fBharmonics\\fR(1), \\fBhmx\\fR(5)");
}

std::string program_page(const CommandTable& table) {
  std::string s = head("harmonics", 1, "train and serve neural models described as flows of streams");
  s += ".SH SYNOPSIS\n"
       "\\fBharmonics\\fR \\fIverb\\fR [\\fIarguments\\fR] [\\fIoptions\\fR]\n"
       ".SH DESCRIPTION\n"
       "A flow (.hmx) describes how streams become results; producers and consumers are bound to files and other "
       "addresses. Data goes to\n"
       "standard output, messages go to standard error.\n"
       ".SH VERBS\n";
  for (const VerbRow& v : table)
    s += fmt::format(".TP\n\\fB{}\\fR\n{}; see \\fBharmonics\\-{}\\fR(1)\n", roff_text(v.name), roff_text(v.help),
                     roff_text(v.name));
  s += listed("ADDRESSES", address_rows()) + ".PP\n" + roff_text(kAddressNotes) + "\n";
  s += listed("EXIT STATUS", exit_rows()) + listed("ENVIRONMENT", variable_rows()) + listed("FILES", file_rows());
  std::string pages = "\\fBhmx\\fR(5)";
  for (const VerbRow& v : table) pages += ", \\fBharmonics\\-" + roff_text(v.name) + "\\fR(1)";
  return s + see_also(pages);
}

std::string language_page() {
  return head("hmx", 5, "the flow language of Harmonics") + roff_of_markdown(language_text()) +
         see_also("\\fBharmonics\\fR(1), \\fBharmonics\\-validate\\fR(1), \\fBharmonics\\-explain\\fR(1)");
}

}  // namespace

std::string man_page(const CommandTable& table, const std::string& page) {
  if (page.empty()) return program_page(table);
  if (page == "hmx") return language_page();
  std::vector<std::string> known{"hmx"};
  for (const VerbRow& v : table) {
    if (v.name == page) return verb_page(v);
    known.push_back(v.name);
  }
  Error e(ErrorKind::Usage, "there is no verb '" + page + "'");
  const std::string meant = did_you_mean(page, known);
  throw e.note(meant.empty() ? "there are pages for the verbs ('harmonics man --list') and the flow language: hmx"
                             : meant);
}

}  // namespace harmonics::engine::cli
