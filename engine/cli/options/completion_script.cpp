// Generates completion scripts from the table of verbs and flags.
#include <algorithm>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/cli/options/command_table.hpp"

namespace harmonics::engine::cli {

namespace {

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string s;
  for (const std::string& w : words) s += (s.empty() ? "" : between) + w;
  return s;
}

bool takes_file(const FlagRow& flag) {
  for (const char* part : {"FILE", "PATH", "DIR", "ADDRESS"})
    if (flag.value.find(part) != std::string::npos) return true;
  return false;
}

bool takes_file(const PositionalRow& p) {
  return p.name == "GRAPH" || p.name == "FILE" || p.name == "THING" || p.name == "WHERE";
}

std::vector<std::string> typed(const VerbRow& verb) {
  std::vector<std::string> all;
  for (const FlagRow& f : verb.flags) {
    all.push_back("--" + f.name);
    if (!f.short_name.empty()) all.push_back("-" + f.short_name);
  }
  return all;
}

std::string patterns(const FlagRow& f) { return "--" + f.name + (f.short_name.empty() ? "" : "|-" + f.short_name); }

std::string bash(const CommandTable& table) {
  std::vector<std::string> verbs;
  for (const VerbRow& v : table) verbs.push_back(v.name);
  // bash splits "images=train.idx" and "--flag=value" into words at '='. The script examines the text before the '='.
  std::string s =
      "# bash completion of harmonics; made by 'harmonics completion bash'\n_harmonics() {\n"
      "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" verb=\"${COMP_WORDS[1]}\"\n"
      "  local at=$COMP_CWORD\n"
      "  if [ \"$cur\" = = ]; then cur= at=$((COMP_CWORD+1)) prev==; fi\n"
      "  if [ \"$prev\" = = ]; then\n    prev=\"${COMP_WORDS[at-2]}\"\n"
      "    case \"$prev\" in -*) ;; *) prev=\"${COMP_WORDS[at-3]}\" ;; esac\n  fi\n"
      "  COMPREPLY=()\n  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W '" +
      joined(verbs) + " --help --help-all --version' -- \"$cur\"))\n    return\n  fi\n  case \"$verb\" in\n";
  for (const VerbRow& v : table) {
    s += "    " + v.name + ")\n      case \"$prev\" in\n";
    for (const FlagRow& f : v.flags) {
      if (f.value.empty()) continue;
      const std::vector<std::string> words = words_of(f);
      s += "        " + patterns(f) + ") " +
           (!words.empty()  ? "COMPREPLY=($(compgen -W '" + joined(words) + "' -- \"$cur\"))"
            : takes_file(f) ? "COMPREPLY=($(compgen -f -- \"$cur\"))"
                            : ":") +
           "; return ;;\n";
    }
    s += "      esac\n      case \"$cur\" in\n        -*) COMPREPLY=($(compgen -W '" + joined(typed(v)) +
         "' -- \"$cur\")) ;;\n        *) ";
    std::string words;
    bool files = false;
    for (const PositionalRow& p : v.positionals) {
      words += joined(words_of(p)) + " ";
      files = files || takes_file(p);
    }
    const bool has_words = words.find_first_not_of(' ') != std::string::npos;
    const std::string from = std::string(files ? " -f" : "") + (has_words ? " -W '" + words + "'" : "");
    s += from.empty() ? ":" : "COMPREPLY=($(compgen" + from + " -- \"$cur\"))";
    s += " ;;\n      esac ;;\n";
  }
  return s + "  esac\n}\ncomplete -o filenames -F _harmonics harmonics\n";
}

// Escapes a text for single quotes in an _arguments specification.
std::string zsh_text(const std::string& text) {
  std::string s;
  for (char c : text) {
    if (c == '\'')
      s += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      s += std::string("\\") + c;
    else
      s += c;
  }
  return s;
}

std::string zsh_values(const std::string& what, const std::vector<std::string>& words, bool files) {
  const bool named = what.find("NAME=") != std::string::npos;
  const std::string from_files = named ? "{compset -P \"*=\"; _files}" : "_files";
  const std::string action = words.empty() ? (files ? from_files : " ")
                             : files       ? "{compadd -- " + joined(words) + "; _files}"
                                           : "(" + joined(words) + ")";
  return ":" + zsh_text(what) + ":" + action;
}

std::string zsh(const CommandTable& table) {
  std::string s =
      "#compdef harmonics\n# zsh completion of harmonics; made by 'harmonics completion zsh'\n_harmonics() {\n  local "
      "-a verbs\n  verbs=(\n";
  for (const VerbRow& v : table) s += "    '" + v.name + ":" + zsh_text(v.help) + "'\n";
  s += "  )\n  if (( CURRENT == 2 )); then\n    _describe 'verb' verbs\n    return\n  fi\n  local "
       "verb=\"${words[2]}\"\n  shift words\n  (( CURRENT-- ))\n  case \"$verb\" in\n";
  for (const VerbRow& v : table) {
    s += "    " + v.name + ")\n      _arguments -s";
    for (const FlagRow& f : v.flags) {
      const std::string value = f.value.empty() ? "" : zsh_values(f.value, words_of(f), takes_file(f)),
                        repeat = f.repeats ? "*" : "";
      s += " \\\n        '" + repeat + "--" + f.name + "[" + zsh_text(full_help(f)) + "]" + value + "'";
      if (!f.short_name.empty())
        s += " \\\n        '" + repeat + "-" + f.short_name + "[" + zsh_text(full_help(f)) + "]" + value + "'";
    }
    for (const PositionalRow& p : v.positionals)
      s += " \\\n        '" + std::string(p.repeats ? "*" : "") + zsh_values(p.name, words_of(p), takes_file(p)) + "'";
    s += "\n      ;;\n";
  }
  return s +
         "  esac\n}\nif [ \"$funcstack[1]\" = _harmonics ]; then _harmonics \"$@\"; else compdef _harmonics harmonics; "
         "fi\n";
}

std::string fish_text(const std::string& text) {
  std::string s;
  for (char c : text) s += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return "'" + s + "'";
}

std::string fish(const CommandTable& table) {
  std::string s = "# fish completion of harmonics; made by 'harmonics completion fish'\ncomplete -c harmonics -f\n";
  for (const VerbRow& v : table)
    s += fmt::format("complete -c harmonics -n __fish_use_subcommand -a {} -d {}\n", v.name, fish_text(v.help));
  for (const VerbRow& v : table) {
    const std::string here = fmt::format("complete -c harmonics -n '__fish_seen_subcommand_from {}'", v.name);
    for (const FlagRow& f : v.flags) {
      s += here + " -l " + f.name;
      if (!f.short_name.empty()) s += " -s " + f.short_name;
      const std::vector<std::string> words = words_of(f);
      if (!f.value.empty())
        s += !words.empty() ? " -x -a " + fish_text(joined(words)) : takes_file(f) ? " -r -F" : " -x";
      s += " -d " + fish_text(full_help(f)) + "\n";
    }
    for (const PositionalRow& p : v.positionals) {
      const std::vector<std::string> words = words_of(p);
      if (!words.empty()) s += here + " -a " + fish_text(joined(words)) + "\n";
      if (takes_file(p)) s += here + " -F\n";
    }
  }
  return s;
}

}  // namespace

std::string completion_script(const CommandTable& table, const std::string& shell) {
  if (shell == "bash") return bash(table);
  if (shell == "zsh") return zsh(table);
  if (shell == "fish") return fish(table);
  throw Error(ErrorKind::Usage, "there is no completion for the shell '" + shell + "'", {},
              {"there is for bash, zsh and fish"});
}

}  // namespace harmonics::engine::cli
