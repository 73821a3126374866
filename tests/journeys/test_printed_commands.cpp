// Runs the commands with curl and `tail -f` from documentation and help exactly as printed, except for ports and for
// ending the run.
#include <sys/wait.h>

#include <utility>
#include <vector>

#include "tests/journeys/sending.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

const fs::path kDocs = fs::path(HARMONICS_SOURCE_DIR) / "docs";

// The flow of docs/sending.md, and one with the names of the shorter examples.
constexpr const char* kDigits =
    "harmonic digits {\n  producer image {4};\n  producer label {3} 1/1 image;\n  layer hidden {8};\n  layer output;\n"
    "  cycle { image -(relu)-> hidden -> output; output <-(cross_entropy)- label; }\n}\n";
constexpr const char* kShort =
    "harmonic short {\n  producer x {2};\n  producer y {2} 1/1 x;\n  layer out;\n"
    "  cycle { x -(affine)-> out; out <-(cross_entropy)- y; }\n}\n";

std::string trimmed(const std::string& line) {
  const size_t from = line.find_first_not_of(' ');
  return from == std::string::npos ? "" : line.substr(from);
}

// Returns the lines of a document that begin with this word.
std::vector<std::string> lines_with(const fs::path& document, const std::string& word) {
  std::vector<std::string> lines;
  std::istringstream text(read(document));
  for (std::string line; std::getline(text, line);)
    if (trimmed(line).rfind(word, 0) == 0) lines.push_back(trimmed(line));
  return lines;
}

// Inserts the test's port and token into a command.
std::string with_port(std::string command, const std::string& port) {
  const size_t at = command.find(":8080");
  REQUIRE(at != std::string::npos);
  command.replace(at + 1, 4, port);
  if (const size_t token = command.find("TOKEN"); token != std::string::npos)
    command.replace(token, 5, "token-of-this-test");
  return command;
}

struct Shell {
  Folder folder;

  Shell() {
    folder.write("digits.hmx", kDigits);
    folder.write("flow.hmx", kShort);
    folder.write("g.hmx", kShort);
  }
  // Returns the exit code of a bash script in the folder; its output is in `out` and `err`.
  int run(const std::string& script) const {
    folder.write("script.sh", "set -u\ncd '" + (folder / "") + "'\n" + script);
    const int status =
        std::system(("PATH='" HARMONICS_BINARY_DIR "/bin':$PATH timeout 100 bash '" + (folder / "script.sh") + "' >'" +
                     (folder / "out") + "' 2>'" + (folder / "err") + "' </dev/null")
                        .c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // Starts `server`, repeats `client` until the server answers, ends the server. Returns the answer.
  std::string answer(const std::string& server, const std::string& client) const {
    const int code = run((has(client, "Bearer") ? "export HARMONICS_TOKEN=token-of-this-test\n" : "") + server +
                         " >server.out 2>server.err &\nserver=$!\n" + "for i in $(seq 300); do " + client +
                         " >answer 2>client.err && grep -qE '.accepted.:1|.outputs.' answer && break; sleep 0.1; done\n"
                         "kill -TERM $server\nwait $server\ncat answer\n");
    INFO(server << "\n" << client << "\n" << read(folder / "server.err") << read(folder / "client.err"));
    CHECK(code == 0);
    return read(folder / "out");
  }
};

}  // namespace

TEST_CASE("printed commands: every curl of the documentation sends a sample that is accepted") {
  int tried = 0;
  for (const auto& entry : fs::directory_iterator(kDocs)) {
    if (entry.path().extension() != ".md") continue;
    for (const std::string& client : lines_with(entry.path(), "curl ")) {
      INFO(entry.path() << ": " << client);
      if (has(client, "/v1/predict")) continue;           // tried with saved weights below
      if (has(client, "/v1/chat/completions")) continue;  // tried with a language model in test_chat.cpp
      REQUIRE(has(client, "/v1/samples"));
      std::string server;
      for (const std::string& line : lines_with(entry.path(), "harmonics run "))
        if (has(line, "=http:#")) server = line;
      const std::string port = unused_port();
      const Shell shell;
      CHECK(has(shell.answer(with_port(server, port), with_port(client, port)), "\"accepted\":1"));
      ++tried;
    }
  }
  CHECK(tried == 2);
}

TEST_CASE("printed commands: the curl of predictions in help and documentation gets an answer") {
  const Shell shell;
  const std::string help = harmonics("serve --help").out;
  const auto line_with = [&](const std::string& word) {
    const size_t at = help.find(word);
    REQUIRE(at != std::string::npos);
    return help.substr(at, help.find('\n', at) - at);
  };
  const std::string port = unused_port();
  shell.folder.write("rows.csv", "0.1,0.2,0\n0.3,0.4,1\n");
  REQUIRE(harmonics("run '" + (shell.folder / "g.hmx") + "' --quiet --epochs 1 --producer 'x=" +
                    (shell.folder / "rows.csv") + "#0-1' --producer 'y=" + (shell.folder / "rows.csv") +
                    "#2' --save '" + (shell.folder / "w.safetensors") + "'")
              .code == 0);
  std::vector<std::string> clients{line_with("curl ")};
  for (const std::string& client : lines_with(kDocs / "live.md", "curl "))
    if (has(client, "/v1/predict")) clients.push_back(client);
  REQUIRE(clients.size() == 2);
  for (const std::string& client : clients)
    CHECK(has(shell.answer(with_port(line_with("harmonics serve "), port), with_port(client, port)),
              "\"outputs\":{\"out\":[["));
}

TEST_CASE("printed commands: every run behind tail -f trains from a file that grows") {
  int tried = 0;
  for (const auto& entry : fs::directory_iterator(kDocs)) {
    if (entry.path().extension() != ".md") continue;
    for (const std::string& command : lines_with(entry.path(), "tail -f ")) {
      INFO(entry.path() << ": " << command);
      const bool digits = has(command, "digits.hmx");
      const Shell shell;
      std::string events;
      for (int i = 0; i < 64; ++i)
        events += digits ? "{\"image\": [1, 0.5, " + std::to_string(i % 3) +
                               ", 1], \"label\": " + std::to_string(i % 3) + "}\n"
                         : "{\"x\": [1, " + std::to_string(i % 2) + "], \"y\": " + std::to_string(i % 2) + "}\n";
      shell.folder.write("events.jsonl", events);
      shell.folder.write("report", "");
      // `tail` starts with the last ten lines, and ends at the first line that it cannot pass on.
      shell.folder.write("more.jsonl", events);
      const int code = shell.run(
          "(" + command + " --steps 1 --json >report) &\npipe=$!\n" +
          "for i in $(seq 600); do cat more.jsonl >>events.jsonl; grep -q samples report && break; sleep 0.1; "
          "done\n"
          "for i in $(seq 600); do kill -0 $pipe 2>/dev/null || break; cat more.jsonl >>events.jsonl; sleep "
          "0.1; done\nwait $pipe\n");
      INFO(read(shell.folder / "err"));
      CHECK(code == 0);
      CHECK(number(read(shell.folder / "report"), "samples") == 64);
      ++tried;
    }
  }
  CHECK(tried == 2);
}
