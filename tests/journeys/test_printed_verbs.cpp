// The commands in the documentation: every flag exists, and those of language models run on a small model.
#include <algorithm>
#include <set>

#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

// Returns a line up to a comment, a pipe, a redirection or a second command.
std::string one_command(const std::string& line) {
  std::string out;
  char quote = 0;
  for (const char c : line) {
    if (quote) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '|' || c == '>' || c == '<' || c == ';' || ((c == '#' || c == '&') && out.ends_with(' '))) {
      break;
    }
    out += c;
  }
  while (out.ends_with(' ')) out.pop_back();
  return out;
}

// Returns the commands in code blocks, with their continued lines.
std::vector<std::string> printed_commands(const fs::path& document) {
  std::vector<std::string> commands;
  bool fenced = false, continues = false;
  for (const std::string& line : lines_of(read(document))) {
    if (line.starts_with("```")) {
      fenced = !fenced;
      continue;
    }
    const size_t from = line.find_first_not_of(' ');
    if (from == std::string::npos || (!fenced && from < 4)) continue;
    std::string text = line.substr(from);
    const bool joined = continues;
    continues = text.ends_with('\\');
    if (continues) text.pop_back();
    if (joined && !commands.empty())
      commands.back() += text;
    else if (text.starts_with("harmonics "))
      commands.push_back(text);
    else
      continues = false;
  }
  for (std::string& command : commands) command = one_command(command);
  return commands;
}

std::vector<fs::path> documents() {
  const fs::path root = HARMONICS_SOURCE_DIR;
  std::vector<fs::path> all{root / "README.md", root / "CONTRIBUTING.md", root / "SECURITY.md"};
  for (const char* folder : {"docs", "samples"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.path().extension() == ".md") all.push_back(entry.path());
  return all;
}

// Runs a command in the folder, for at most `seconds`.
Result run_printed(const Folder& f, const std::string& command, int seconds) {
  const std::string script =
      f.write(".command", "cd '" + (f / "") + "'; export HOME='" + (f / "") +
                              "' PATH='" HARMONICS_BINARY_DIR "/bin':\"$PATH\"\n" + command + "\n");
  const int status = std::system(("timeout " + std::to_string(seconds) + " bash '" + script + "' >'" + (f / ".out") +
                                  "' 2>'" + (f / ".err") + "' </dev/null")
                                     .c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, "", read(f / ".err")};
}

}  // namespace

TEST_CASE("printed commands: each has a verb and flags that exist") {
  std::set<std::string> tried;
  for (const fs::path& document : documents())
    for (const std::string& command : printed_commands(document)) {
      if (command.find("$(") != std::string::npos || !tried.insert(command).second) continue;
      if (command.starts_with("harmonics inspect my_act")) continue;  // from a plugin that the page writes
      const Folder empty;  // files are missing; commands that wait for a peer are stopped
      const Result r = run_printed(empty, command, 2);
      INFO(document << ": " << command << "\n" << r.err);
      CHECK(r.code != 2);
      CHECK(r.code != 70);
    }
  CHECK(tried.size() > 80);
}

TEST_CASE("printed commands: those of language models run on a small model") {
  const Folder f;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "The cat sat on mat " + std::to_string(i) + ".\n";
  for (const char* name : {"book.txt", "text.txt"}) f.write(name, text);
  fs::create_directory(f / "texts");
  f.write("texts/a.txt", text);
  f.write("small.ndsl",
          "name: Small\ntype: model\nextends: Llama2\nconfig:\n  vocab_size: 300\n  hidden_size: 64\n  num_layers: 2\n"
          "  num_query_heads: 4\n  num_kv_heads: 2\n  intermediate_size: 128\n  max_position_embeddings: 256\n");
  f.write("config.yaml",
          "model: model/\ndatasets: book.txt\nsequence_len: 16\nmicro_batch_size: 2\nmax_steps: 2\noutput_dir: out\n");
  for (const char* made :
       {"harmonics tokenize --train 300 --file book.txt tokenizer.json",
        "harmonics export small.ndsl model/ --tokenizer tokenizer.json", "harmonics export model/ model.gguf",
        "harmonics export small.ndsl Qwen3-0.6B/ --tokenizer tokenizer.json",
        "harmonics train config.yaml --set output_dir=trained", "cp trained/weights.safetensors weights.safetensors"}) {
    const Result r = run_printed(f, made, 60);
    INFO(made << "\n" << r.err);
    REQUIRE(r.code == 0);
  }
  // Commands with models and files that are not available here.
  const char* const others[] = {"--decode",        "stories260K",      "my_spec.json",
                                "generate Qwen3 ", "harmonics serve ", "rows.csv"};
  int ran = 0;
  for (const char* page : {"train", "ndsl", "specs", "language-models"})
    for (const std::string& command :
         printed_commands(fs::path(HARMONICS_SOURCE_DIR) / "docs" / (std::string(page) + ".md"))) {
      if (std::any_of(std::begin(others), std::end(others),
                      [&](const char* other) { return command.find(other) != std::string::npos; }) ||
          command.starts_with("harmonics run "))
        continue;
      const Result r = run_printed(f, command, 60);
      INFO(page << ": " << command << "\n" << r.err);
      CHECK(r.code == 0);
      ++ran;
    }
  CHECK(ran >= 18);
}
