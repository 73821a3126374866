// Help, completion, manual pages, one JSON object per verb, colours: everything generated from the table of verbs and
// flags.
#include "tests/journeys/background.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

#include <algorithm>
#include <cctype>
#include <set>

using namespace journeys;

namespace {

// Runs a script in a shell. Returns 127 if the shell is not installed.
Result shell(const std::string& command) {
  Folder f;
  const int status =
      std::system(("timeout 30 " + command + " >'" + (f / "out") + "' 2>'" + (f / "err") + "' </dev/null").c_str());
  Result r{WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(f / "out"), read(f / "err")};
  UNSCOPED_INFO(command << "\nexit " << r.code << "\n" << r.out.substr(0, 2000) << r.err.substr(0, 2000));
  return r;
}
bool there_is(const std::string& program) {
  const bool found = std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
  if (!found) WARN("skipped: there is no " << program);
  return found;
}

std::vector<std::string> verbs() {
  std::vector<std::string> all;
  std::stringstream page(harmonics("man").out);
  for (std::string line; std::getline(page, line);) {
    const size_t at = line.find("see \\fBharmonics\\-");
    if (at == std::string::npos) continue;
    std::string verb = line.substr(at + 18, line.find("\\fR(1)", at) - at - 18);
    if (const size_t hyphen = verb.find("\\-"); hyphen != std::string::npos) verb.erase(hyphen, 1);
    all.push_back(std::move(verb));
  }
  REQUIRE(all.size() >= 12);
  return all;
}

// Returns the first word of a command with an unquoted '?', '&', '#' or '*' and with ':' or '='; "": none.
std::string unquoted_address(const std::string& line) {
  std::string word;
  bool bare = false;
  char quote = 0;
  for (const char c : line + " ") {
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == ' ') {
      if (bare && word.find_first_of(":=") != std::string::npos) return word;
      word.clear(), bare = false;
      continue;
    } else if (c == '?' || c == '*' || ((c == '#' || c == '&') && !word.empty())) {
      bare = true;
    }
    word += c;
  }
  return "";
}

const std::string kFewDigits = "--producer 'synth:digits?size=128' --producer 'synth:digits?size=128#label' ";

}  // namespace

TEST_CASE("help: begins with examples, and has headings, defaults and ranges in words") {
  const Result all = harmonics("--help"), run = harmonics("run --help");
  CHECK(all.code == 0);
  for (const std::string& verb : verbs()) CHECK(has(all.out, "\n  " + verb + " "));
  CHECK(has(all.out, "Start here:\n  harmonics run samples/mnist.hmx"));
  for (const char* part : {"Data:", "Stopping:", "Training:", "Checkpoints:", "Watching:", "Machine:", "Output:",
                           "(default 0.001)", "--validate"})
    CHECK(has(run.out, part));
  for (const std::string& verb : verbs()) {
    const Result help = harmonics(verb + " --help");
    CHECK(help.code == 0);
    CHECK(has(help.out, "\n\nExamples:\n  "));
    CHECK(help.out.find("Examples:") < help.out.find("Usage: harmonics " + verb));
    for (const char* raw : {"INT:", "FLOAT", " in [", "9223372036854775807", "Print this help"})
      CHECK_FALSE(has(help.out, raw));
    std::stringstream lines(help.out);
    std::set<std::string> flags;
    bool after_examples = false;
    for (std::string line; std::getline(lines, line);) {
      after_examples = after_examples || line.starts_with("Usage:");
      const size_t flag = line.find("--");
      if (after_examples && flag == 6 && line.find_first_not_of(' ') < 7)
        CHECK(flags.insert(line.substr(flag, line.find(' ', flag) - flag)).second);
      CHECK((line.size() <= 100 || has(line, "harmonics ") || has(line, "curl ")));
      const size_t text = line.find_first_not_of(' ');  // wrapped lists break after a separator
      CHECK_FALSE((text != std::string::npos && (line[text] == ',' || line[text] == ':')));
      CHECK_FALSE((has(line, "  ,") || has(line, "  :")));
    }
  }
  CHECK(has(harmonics("export --help").out, "gguf, huggingface or safetensors: the exporter"));
  CHECK(has(harmonics("--help-all").out, "Usage: harmonics version"));
  CHECK(harmonics("--version").out.starts_with("harmonics "));
}

TEST_CASE("help: --help at any position prints help") {
  for (const char* line :
       {"tap gpt.sock --help", "tap -h", "ctl run.sock lr --help", "run --epochs --help", "send --help --rate no"})
    CHECK(has(harmonics(line).out, "Examples:\n"));
  CHECK(harmonics("validate -- --help").code == 66);
}

TEST_CASE("verbs: each has examples, a manual page and a schema, and all lists of verbs agree") {
  std::vector<std::string> listed, kinds;
  std::stringstream man(harmonics("man --list").out), list(harmonics("list verbs").out);
  for (std::string line; std::getline(man, line);) listed.push_back(line);
  for (std::string word, line; list >> word && std::getline(list, line);)
    if (word != "verbs") kinds.push_back(word);
  CHECK(listed == verbs());
  CHECK(kinds == verbs());
  std::set<std::string> schemas;
  for (const auto& entry : fs::directory_iterator(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema"))
    if (entry.is_regular_file()) schemas.insert(entry.path().stem().string());
  for (const std::string& verb : listed) {
    INFO(verb);
    CHECK(schemas.count(verb) == 1);
    CHECK(has(harmonics(verb + " --help").out, "--json"));
    const std::string page = harmonics("man " + verb).out;
    for (const char* part : {".SH SYNOPSIS\n", ".SH EXAMPLES\n", ".SH OPTIONS\n", ".SH EXIT STATUS\n",
                             ".SH ENVIRONMENT\n", "\\fBhmx\\fR(5)"})
      CHECK(has(page, part));
    CHECK(has(page, ".SH ADDRESSES\n") == has(harmonics(verb + " --help").out, "[NAME=]ADDRESS"));
  }
  for (const std::string& schema : schemas)  // schemas of live runs, not of verbs
    CHECK((std::find(listed.begin(), listed.end(), schema) != listed.end() || schema == "control" ||
           schema == "error" || schema == "event" || schema == "log" || schema == "status"));
}

TEST_CASE("help: manual pages and docs list the same exit codes and variables") {
  const std::string docs = read(std::string(HARMONICS_SOURCE_DIR) + "/docs/cli.md"), page = harmonics("man").out;
  const std::string codes =
      page.substr(page.find(".SH EXIT STATUS"), page.find(".SH ENVIRONMENT") - page.find(".SH EXIT STATUS"));
  const std::string variables =
      page.substr(page.find(".SH ENVIRONMENT"), page.find(".SH FILES") - page.find(".SH ENVIRONMENT"));
  std::stringstream exits(
      docs.substr(docs.find("## Exit codes"), docs.find("## Environment") - docs.find("## Exit codes")));
  int compared = 0;
  for (std::string line; std::getline(exits, line);)
    if (line.size() > 2 && std::isdigit(static_cast<unsigned char>(line[2]))) {
      CHECK(has(codes, "\\fB" + line.substr(2, line.find(" |") - 2) + "\\fR"));
      ++compared;
    }
  CHECK(compared >= 13);
  std::stringstream environment(docs.substr(docs.find("## Environment")));
  for (std::string line; std::getline(environment, line);)
    if (line.starts_with("| `HARMONICS_")) CHECK(has(variables, line.substr(3, line.find('`', 3) - 3)));
}

TEST_CASE("help: docs and help quote addresses with special shell characters") {
  std::vector<fs::path> pages{fs::path(HARMONICS_SOURCE_DIR) / "README.md"};
  for (const char* folder : {"docs", "samples"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(HARMONICS_SOURCE_DIR) / folder))
      if (entry.path().extension() == ".md") pages.push_back(entry.path());
  std::vector<std::pair<std::string, std::string>> texts;
  for (const fs::path& page : pages) texts.emplace_back(page.string(), read(page));
  for (const std::string& verb : verbs()) texts.emplace_back(verb, harmonics(verb + " --help").out);
  int commands = 0;
  for (const auto& [name, text] : texts) {
    std::stringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const size_t begin = line.find_first_not_of(" $");
      if (begin == std::string::npos ||
          (line.compare(begin, 10, "harmonics ") != 0 && line.compare(begin, 2, "--") != 0))
        continue;
      ++commands;
      INFO(name << ": " << line);
      CHECK(unquoted_address(line) == "");
    }
  }
  CHECK(commands > 100);
}

TEST_CASE("help: the request shown for serve is answered") {
  if (!there_is("curl")) return;
  Folder f;
  const std::string flow = f.write(
      "g.hmx", "harmonic g { producer x {2}; producer y {1}; layer o; cycle { x -(affine)-> o; o <-(mse)- y; } }\n");
  const std::string x = f.write("x.csv", "1,2\n3,4\n"), y = f.write("y.csv", "1\n2\n"), weights = f / "w.safetensors";
  REQUIRE(harmonics("run " + flow + " --producer " + x + " --producer " + y + " --epochs 1 --quiet --save " + weights)
              .code == 0);
  const std::string help = harmonics("serve --help").out;
  const size_t at = help.find("curl ");
  REQUIRE(at != std::string::npos);
  std::string request = help.substr(at, help.find('\n', at) - at);
  Background server(f, "serve " + flow + " --weights " + weights + " --listen 127.0.0.1:0");
  std::string address;
  REQUIRE(server.await([&] {
    const std::string said = server.errors();
    const size_t from = said.find("http://"), to = said.find_first_of(" \n", from);
    if (from == std::string::npos || to == std::string::npos) return false;
    address = said.substr(from, to - from);
    return true;
  }));
  const std::string shown = "http://127.0.0.1:8080";
  REQUIRE(has(request, shown));
  request.replace(request.find(shown), shown.size(), address.substr(0, address.find('/', 7)));
  const Result answer = shell(f.write("ask.sh", "curl -s -f" + request.substr(4) + "\n").insert(0, "sh "));
  CHECK(answer.code == 0);
  CHECK(has(answer.out, "\"outputs\""));
  server.signal(SIGTERM);
  CHECK(server.end().code == 143);
}

TEST_CASE("help: all examples are valid commands") {
  const std::string help = harmonics("run --help").out;
  const size_t at = help.find("harmonics run samples/mnist.hmx");
  REQUIRE(at != std::string::npos);
  const std::string line = help.substr(at + 10, help.find('\n', at) - at - 10);
  CHECK(shell("sh -c \"cd " HARMONICS_SOURCE_DIR " && '" + kProgram + "' " + line + " --steps 2 --quiet\"").code == 0);
}

TEST_CASE("help: an unknown flag or verb gives the nearest one") {
  const Result flag = harmonics("run " + kSamples + "mnist.hmx --epoch 3");
  CHECK(flag.code == 2);
  CHECK(flag.err ==
        "error: 'run' has no flag --epoch\nhelp: did you mean '--epochs'?\nhelp: 'harmonics run --help' shows what it "
        "takes\n");
  const Result verb = harmonics("trian " + kSamples + "mnist.hmx");
  CHECK(verb.code == 2);
  CHECK(has(verb.err, "error: there is no verb 'trian'\n"));
  const Result value = harmonics("run " + kSamples + "mnist.hmx --batch none");
  CHECK(value.code == 2);
  CHECK(has(value.err, "--batch"));
}

TEST_CASE("completion: bash completes verbs, flags and values") {
  Folder f;
  const std::string script = f.write("c.bash", harmonics("completion bash").out);
  REQUIRE(shell("bash -n " + script).code == 0);
  const auto complete = [&](const std::string& words, int at) {
    return shell("bash -c 'source " + script + "; COMP_WORDS=(" + words + "); COMP_CWORD=" + std::to_string(at) +
                 "; _harmonics; printf \"%s\\n\" \"${COMPREPLY[@]}\"'")
        .out;
  };
  CHECK(complete("harmonics in", 1) == "infer\ninspect\n");
  CHECK(complete("harmonics run g.hmx --opt", 3) == "--optimizer\n");
  CHECK(complete("harmonics run g.hmx --optimizer ad", 4) == "adam\nadamw\n");
  CHECK(complete("harmonics run g.hmx --color a", 4) == "auto\nalways\n");
  const std::string devices = complete("harmonics run g.hmx --device \"\"", 4),
                    kinds = complete("harmonics list \"\"", 2);
  std::stringstream known(harmonics("list devices").out);
  for (std::string line; std::getline(known, line);)
    if (line.starts_with("  ") && line[2] != ' ')
      CHECK(has("\n" + devices, "\n" + line.substr(2, line.find(' ', 2) - 2) + "\n"));
  for (const char* kind :
       {"functions", "activations", "losses",          "layers",     "producers",  "consumers",  "devices",
        "metrics",   "functionals", "implementations", "optimizers", "schedules",  "predicates", "augmentations",
        "importers", "exporters",   "tokenizers",      "policies",   "primitives", "verbs"})
    CHECK(has("\n" + kinds, "\n" + std::string(kind) + "\n"));
  CHECK(complete("harmonics run g.hmx --producer images = " + kSamples + "mnist_", 6) == kSamples + "mnist_cnn.hmx\n");
  CHECK(complete("harmonics run g.hmx --optimizer = ad", 5) == "adam\nadamw\n");
  CHECK(has(complete("harmonics inspect ls", 2), "lstm\n"));
  CHECK(complete("harmonics list m", 2) == "metrics\nmodels\n");
  CHECK(complete("harmonics completion ", 2) == "bash\nzsh\nfish\n");
  CHECK(complete("harmonics run " + kSamples + "mnist_", 2) == kSamples + "mnist_cnn.hmx\n");
}

TEST_CASE("completion: zsh and fish load their scripts and complete with them") {
  Folder f;
  if (there_is("zsh")) {
    const std::string script = f.write("_harmonics", harmonics("completion zsh").out);
    CHECK(shell("zsh -n " + script).code == 0);
    CHECK(shell("zsh -fc 'autoload -U compinit && compinit -D -u && source " + script +
                " && [[ ${_comps[harmonics]} = _harmonics ]]'")
              .code == 0);
  }
  if (there_is("fish")) {
    const std::string script = f.write("harmonics.fish", harmonics("completion fish").out);
    REQUIRE(shell("env HOME=" + (f / "") + " fish --no-execute " + script).code == 0);
    const auto complete = [&](const std::string& line) {
      return shell("env HOME=" + (f / "") + " fish --no-config -c 'source " + script + "; complete -C\"" + line + "\"'")
          .out;
    };
    CHECK(has(complete("harmonics ins"), "inspect\t"));
    CHECK(has(complete("harmonics run --opt"), "--optimizer\t"));
    CHECK(has(complete("harmonics run --schedule cos"), "cosine"));
  }
  CHECK(harmonics("completion tcsh").code == 2);
}

TEST_CASE("manual pages: are well formed and agree with help") {
  Folder f;
  const bool lint = there_is("mandoc");
  std::vector<std::string> pages = verbs();
  pages.emplace_back("");
  for (const std::string& verb : pages) {
    const Result r = harmonics("man " + verb);
    REQUIRE(r.code == 0);
    const std::string page = f.write("page.1", r.out);
    if (lint) CHECK(shell("mandoc -T lint -W error " + page).out == "");
  }
  const std::string run = harmonics("man run").out;
  for (const char* part : {".TH HARMONICS\\-RUN 1", ".SS Watching",
                           "\\fB\\-p\\fR, \\fB\\-\\-producer\\fR \\fI[NAME=]ADDRESS\\fR", ".SH EXAMPLES"})
    CHECK(has(run, part));
  const std::string language = harmonics("man hmx").out,
                    source = read(std::string(HARMONICS_SOURCE_DIR) + "/docs/hmx.md");
  CHECK(has(language, ".TH HMX 5 "));
  std::stringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("## ")) continue;
    for (char& c : line) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    CHECK(has(language, "\n.SH " + line.substr(3) + "\n"));
  }
  if (lint) CHECK(shell("mandoc -T lint -W error " + f.write("hmx.5", language)).out == "");
  const Result unknown = harmonics("man rum");
  CHECK(unknown.code == 2);
  CHECK(unknown.err == "error: there is no verb 'rum'\nhelp: did you mean 'run'?\n");
}

TEST_CASE("manual pages: numbered lists of the flow language are lists") {
  const std::string language = harmonics("man hmx").out;
  CHECK(has(language, "\n.IP 1. 4\nloaded weights, including tied weights and "));
  CHECK(has(language, "\n.IP 7. 4\nthe source's width\n"));
}

TEST_CASE("verbs: each prints one JSON object that matches its schema") {
  Folder f;
  const std::string weights = f / "w.safetensors";
  REQUIRE(harmonics("run " + kSamples + "mnist.hmx " + kFewDigits + "--epochs 1 --quiet --save " + weights).code == 0);
  const std::string text = f.write("t.txt", std::string(400, 'a') + std::string(400, 'b')),
                    letters = f / "l.safetensors";
  REQUIRE(harmonics("run " + kSamples + "char_lstm.hmx --producer 'file:" + text +
                    "?window=16' --steps 2 --quiet --save " + letters)
              .code == 0);
  REQUIRE(harmonics("run " + kSamples + "mnist.hmx " + kFewDigits + "--epochs 1 --quiet --checkpoint " + (f / "runs"))
              .code == 0);
  const std::string mnist = kSamples + "mnist.hmx ", bad = f.write("bad.hmx", "harmonic g { layer a }");
  const std::vector<std::pair<std::string, std::string>> calls = {
      {"run", mnist + kFewDigits + "--epochs 1"},
      {"run", mnist + kFewDigits +
                  "--epochs 1 --metric f1 --validate 'synth:digits?size=64' --validate 'synth:digits?size=64#label' "
                  "--test 'synth:digits?size=64' --test 'synth:digits?size=64#label'"},
      {"run", mnist + "--infer --producer 'synth:digits?size=4' --weights " + weights},
      {"infer", mnist + "--producer 'synth:digits?size=4' --weights " + weights},
      {"infer", kSamples + "char_lstm.hmx --generate 5 --weights " + letters},
      {"validate", mnist},
      {"validate", mnist + bad},
      {"explain", mnist + kFewDigits},
      {"explain", mnist + kFewDigits + "--show flow,widths,program,kernels,memory --after cse"},
      {"explain", mnist + kFewDigits + "--dot"},
      {"profile", mnist + kFewDigits + "--steps 3 --batch 8"},
      {"bench", mnist + kFewDigits + "--batch 8 --threads 1 --seconds 0.02"},
      {"list", ""},
      {"list", "primitives"},
      {"inspect", "conv"},
      {"inspect", "topk"},
      {"inspect", "adamw"},
      {"inspect", weights},
      {"inspect", std::string(HARMONICS_BINARY_DIR) + "/lib/harmonics/plugins/libharmonics_metrics.so"},
      {"ckpt", "list " + (f / "runs")},
      {"ckpt", "show " + (f / "runs")},
      {"ckpt", "verify " + (f / "runs")},
      {"ckpt", "diff " + (f / "runs") + " " + (f / "runs")},
      {"cache", "list"},
      {"cache", "list packed"},
      {"plugin", "new my_loss --kind loss --directory " + (f / "my_loss")},
      {"plugin", "doctor"},
      {"plugin", "list"},
      {"plugin", "check " + std::string(HARMONICS_BINARY_DIR) + "/lib/harmonics/plugins/libharmonics_synth.so"},
      {"send", "file:" + (f / "sent.csv") + " --from 'synth:digits?size=3#label'"},
      {"receive", "'synth:digits?size=3#label' --to label=file:" + (f / "got.csv")},
      {"keys", f / "camera.key"},
      {"quantize",
       f.write("m.gguf", "GGUF" + std::string("\3\0\0\0", 4) + std::string(24, '\0')) + " " + (f / "n.gguf")},
      {"export", weights + " " + (f / "exported.gguf")},
      {"config", "show"},
      {"config", "show run"},
      {"completion", "bash"},
      {"man", ""},
      {"man", "--list"},
      {"version", ""},
      {"version", "--licenses"}};
  std::set<std::string> tried;
  for (const auto& [verb, arguments] : calls) {
    const Result r = harmonics(verb + " " + arguments + " --json --quiet");
    CHECK((r.code == 0 || has(arguments, bad)));
    REQUIRE(!r.out.empty());
    const size_t last = r.out.rfind('\n', r.out.size() - 2);
    const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/" + verb + ".json"));
    CHECK(SchemaCheck::run(schema, json::parse(r.out.substr(last == std::string::npos ? 0 : last + 1))) ==
          std::vector<std::string>{});
    tried.insert(verb);
  }
  for (const std::string& verb : verbs()) {
    INFO(verb);
    CHECK((tried.count(verb) || fs::exists(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/" + verb + ".json")));
  }
}

TEST_CASE("schemas: a violation is detected") {
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/version.json"));
  CHECK(SchemaCheck::run(schema, json::parse(R"({"version":1,"harmonics":"0.1","contract":2,"more":1})")) ==
        std::vector<std::string>{"$: lacks compiler", "$.contract: 2 is not of type string",
                                 "$.more: is not in the schema"});
}

TEST_CASE("colours: only on terminals, unless set otherwise") {
  const std::string wrong = "run nowhere.hmx --producer x=y ";
  const std::string red = "\x1b[1;31merror:\x1b[0m ";
  CHECK(harmonics(wrong).err.starts_with("error: "));
  CHECK(harmonics(wrong + "--color always").err.starts_with(red));
  const auto with = [&](const std::string& variables, const std::string& flag) {
    return shell("env " + variables + " '" + kProgram + "' " + wrong + flag).err;
  };
  CHECK(with("CLICOLOR_FORCE=1", "").starts_with(red));
  CHECK(with("CLICOLOR_FORCE=0", "").starts_with("error: "));
  CHECK(with("CLICOLOR_FORCE=1 NO_COLOR=1", "").starts_with("error: "));
  CHECK(with("NO_COLOR=1", "--color always").starts_with(red));
  CHECK(with("CLICOLOR_FORCE=1", "--color never").starts_with("error: "));
  if (there_is("script")) {  // a terminal
    CHECK(has(shell("script -qec \"'" + kProgram + "' " + wrong + "\" /dev/null").out, red));
    CHECK_FALSE(
        has(shell("env NO_COLOR=1 script -qec \"'" + kProgram + "' " + wrong + "\" /dev/null").out, "\x1b[1;31m"));
  }
}
