// Manual pages, made from the table of verbs and flags.
#include <algorithm>
#include <sstream>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "engine/cli/command.hpp"
#include "engine/cli/command_table.hpp"
#include "engine/cli/output.hpp"

namespace harmonics::cli {

namespace {

// Text of a page: what roff would take for its own is escaped.
std::string plain(const std::string& text) {
  std::string s;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool begins = i == 0 || text[i - 1] == '\n';
    if (c == '\\') s += "\\e";
    else if (c == '-') s += "\\-";
    else if (begins && (c == '.' || c == '\'')) s += std::string("\\&") + c;
    else s += c;
  }
  return s;
}

std::string upper(std::string s) {
  for (char& c : s) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return s;
}

std::string head(const std::string& name, const std::string& help) {
  return fmt::format(".TH {} 1 \"\" \"Harmonics {}\" \"Harmonics\"\n.SH NAME\n{} \\- {}\n", upper(plain(name)), HARMONICS_VERSION, plain(name), plain(help));
}

std::string flag_text(const FlagRow& f) {
  std::string s = "\\fB\\-\\-" + plain(f.name) + "\\fR";
  if (!f.short_name.empty()) s = "\\fB\\-" + plain(f.short_name) + "\\fR, " + s;
  if (!f.value.empty()) s += " \\fI" + plain(f.value) + "\\fR";
  return fmt::format(".TP\n{}\n{}\n", s, plain(f.help + (f.repeats ? "; may be given several times" : "")));
}

std::string options(const VerbRow& verb) {
  std::vector<std::string> groups;
  for (const FlagRow& f : verb.flags)
    if (std::find(groups.begin(), groups.end(), f.group) == groups.end()) groups.push_back(f.group);
  std::string s = ".SH OPTIONS\n";
  for (const std::string& group : groups) {
    if (group != "Options") s += ".SS " + plain(group) + "\n";
    for (const FlagRow& f : verb.flags)
      if (f.group == group) s += flag_text(f);
  }
  return s;
}

std::string synopsis(const VerbRow& verb) {
  std::string s = "\\fBharmonics " + plain(verb.name) + "\\fR";
  for (const PositionalRow& p : verb.positionals) {
    const std::string name = "\\fI" + p.name + "\\fR" + (p.repeats ? " ..." : "");
    s += p.required ? " " + name : " [" + name + "]";
  }
  return ".SH SYNOPSIS\n" + s + " [\\fIoptions\\fR]\n";
}

std::string verbatim(const std::string& heading, const std::string& text) { return ".SH " + heading + "\n.nf\n" + plain(text) + "\n.fi\n"; }

// The footer of a verb's help: what stands before "Example" is about it, what follows shows it.
std::string examples(const VerbRow& verb) {
  if (verb.examples.empty()) return "";
  const size_t at = verb.examples.find("Example");
  const size_t line = at == std::string::npos ? std::string::npos : verb.examples.find('\n', at);
  std::string s;
  if (at != std::string::npos && at > 0) s += verbatim("NOTES", verb.examples.substr(0, verb.examples.find_last_not_of('\n', at - 1) + 1));
  return s + verbatim("EXAMPLES", line == std::string::npos ? verb.examples : verb.examples.substr(line + 1));
}

constexpr const char* kExits =
    ".SH EXIT STATUS\n"
    ".TP\n0\ndone\n.TP\n1\nfailed: a plugin, a device, or numbers that stopped being finite\n.TP\n2\nwrong use\n.TP\n65\ndata that cannot be understood\n"
    ".TP\n66\na file that is not there\n.TP\n70\na bug of this program\n.TP\n73\na file that cannot be written\n.TP\n78\na graph or configuration that is not valid\n"
    ".TP\n130\nstopped by Ctrl\\-C after the running step\n";

constexpr const char* kEnvironment =
    ".SH ENVIRONMENT\n"
    ".TP\n\\fBHARMONICS_\\fIFLAG\\fR\nthe value of a flag that is not given, e.g. HARMONICS_BATCH=128; several are separated by ;\n"
    ".TP\n\\fBHARMONICS_PLUGIN_PATH\\fR\nfolders searched for plugins\n.TP\n\\fBNO_COLOR\\fR, \\fBCLICOLOR_FORCE\\fR\ncolours off, on\n"
    ".SH FILES\n"
    ".TP\n\\fI./harmonics.toml\\fR, \\fI~/.config/harmonics/config.toml\\fR, \\fI/etc/harmonics/config.toml\\fR\nvalues of flags that are neither given nor in the environment\n"
    ".TP\n\\fIPREFIX/share/harmonics/samples\\fR, \\fIPREFIX/share/doc/harmonics\\fR\nsample flows, documentation; \\fBharmonics version\\fR prints where\n";

std::string program_page(const CommandTable& table) {
  std::string s = head("harmonics", "train and serve neural models described as flows of streams");
  s += ".SH SYNOPSIS\n\\fBharmonics\\fR \\fIverb\\fR [\\fIarguments\\fR] [\\fIoptions\\fR]\n.SH DESCRIPTION\n"
       "A flow (.hmx) says how streams become results; producers and consumers are bound to files and other addresses. Data goes to\n"
       "standard output, what people read to standard error.\n.SH VERBS\n";
  for (const VerbRow& v : table) s += fmt::format(".TP\n\\fB{}\\fR\n{}; see \\fBharmonics\\-{}\\fR(1)\n", plain(v.name), plain(v.help), plain(v.name));
  return s + kExits + kEnvironment;
}

int list_verbs(const Options& options) {
  if (!options.files.empty())
    throw Error(ErrorKind::Usage, "--list goes without a verb, and '" + options.files.front() + "' is given", {}, {"leave one of them out"});
  boost::json::array verbs;
  for (const VerbRow& v : command_table()) {
    verbs.emplace_back(v.name);
    if (!options.json) print("{}\n", v.name);
  }
  if (options.json) print_json(boost::json::object{{"version", 1}, {"verbs", verbs}});
  return kDone;
}

}  // namespace

std::string man_page(const CommandTable& table, const std::string& verb) {
  if (verb.empty()) return program_page(table);
  std::vector<std::string> known;
  for (const VerbRow& v : table) {
    if (v.name == verb) return head("harmonics-" + v.name, v.help) + synopsis(v) + options(v) + examples(v) + ".SH SEE ALSO\n\\fBharmonics\\fR(1)\n";
    known.push_back(v.name);
  }
  Error e(ErrorKind::Usage, "there is no verb '" + verb + "'");
  if (auto near = nearest(verb, known)) e.note("did you mean '" + *near + "'?");
  throw e;
}

int man_command(const Options& options) {
  if (options.list) return list_verbs(options);
  const std::string verb = options.files.empty() ? "" : options.files.front();
  const std::string page = man_page(command_table(), verb);
  if (options.json) print_json(boost::json::object{{"version", 1}, {"page", verb.empty() ? "harmonics" : "harmonics-" + verb}, {"text", page}});
  else print("{}", page);
  return kDone;
}

}  // namespace harmonics::cli
