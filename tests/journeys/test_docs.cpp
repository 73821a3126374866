// Runs the commands of the README and the tutorial like a new user: from a clone, with an empty home folder, every
// block in order.
#include "tests/journeys/sending.hpp"
#include "tests/journeys/shell.hpp"

#include <vector>

using namespace journeys;

namespace {

// ```LANGUAGE [title=FILE]
struct Block {
  std::string language, title, text;
  int line = 0;
};

std::vector<Block> blocks_of(const fs::path& document) {
  std::ifstream in(document);
  REQUIRE(in);
  std::vector<Block> blocks;
  bool open = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.rfind("```", 0) != 0) {
      if (open) blocks.back().text += line + "\n";
      continue;
    }
    open = !open;
    if (!open) continue;
    std::istringstream head(line.substr(3));
    Block b;
    std::string title;
    head >> b.language >> title;
    if (!title.empty()) {
      REQUIRE(title.rfind("title=", 0) == 0);
      b.title = title.substr(6);
    }
    b.line = number;
    blocks.push_back(b);
  }
  CHECK_FALSE(open);
  return blocks;
}

const char* const kMark = "@@ block of line ";

// Builds one script from all blocks: titled blocks are files, sh blocks are commands, untitled blocks of other
// languages are only illustrations.
std::string script_of(const std::vector<Block>& blocks) {
  std::string script = "set -eu\n";
  for (const Block& b : blocks) {
    if (!b.title.empty()) script += "cat > " + b.title + " <<'END_OF_FILE'\n" + b.text + "END_OF_FILE\n";
    if (b.language != "sh") continue;
    script += "echo '" + std::string(kMark) + std::to_string(b.line) + "'\n";
    std::istringstream lines(b.text);
    // Skips the commands that run these tests.
    for (std::string line; std::getline(lines, line);)
      if (line.rfind("scripts/", 0) != 0) script += line + "\n";
  }
  return script + "echo '" + std::string(kMark) + "0'\n";
}

// A clone with the program in build/release, and an empty home.
struct Newcomer {
  Folder folder;

  Newcomer() {
    fs::create_directories(folder / "home");
    fs::create_directories(folder / "clone/build");
    fs::create_directory_symlink(HARMONICS_BINARY_DIR, folder / "clone/build/release");
    for (const auto& entry : fs::directory_iterator(HARMONICS_SOURCE_DIR))
      if (entry.path().filename() != "build" && entry.path().filename().string()[0] != '.')
        fs::create_symlink(entry.path(), folder / ("clone/" + entry.path().filename().string()));
  }

  std::string types(const std::string& script, int seconds) const {
    folder.write("script.sh", script);
    const std::string command = "cd '" + (folder / "clone") + "' && env -i HOME='" + (folder / "home") + "' PATH='" +
                                HARMONICS_BINARY_DIR + "/bin:/usr/bin:/bin' LANG=C.UTF-8 timeout " +
                                std::to_string(seconds) + " bash '" + (folder / "script.sh") + "' >'" +
                                (folder / "log") + "' 2>&1 </dev/null";
    const int status = std::system(command.c_str());
    const std::string log = read(folder / "log");
    INFO(log.substr(log.size() > 6000 ? log.size() - 6000 : 0));
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(has(log, std::string(kMark) + "0\n"));
    return log;
  }
};

// Returns the output of the commands at that line of the document.
std::string output_of(const std::string& log, int line) {
  const std::string mark = kMark + std::to_string(line) + "\n";
  const size_t at = log.find(mark);
  REQUIRE(at != std::string::npos);
  return log.substr(at + mark.size(), log.find(kMark, at + mark.size()) - at - mark.size());
}

size_t after(const std::string& text, size_t at, bool (*is)(char)) {
  while (at < text.size() && is(text[at])) ++at;
  return at;
}
bool blank(char c) { return c == ' '; }
bool of_number(char c) { return (c >= '0' && c <= '9') || c == '.' || c == ','; }

// Returns whether the line begins with the shown text. A number matches any number, "…" any text, blanks any blanks.
bool begins_with(const std::string& line, size_t at, const std::string& shown, size_t from = 0) {
  const std::string anything = "…";
  while (from < shown.size()) {
    if (shown.compare(from, anything.size(), anything) == 0) {
      for (size_t i = at; i <= line.size(); ++i)
        if (begins_with(line, i, shown, from + anything.size())) return true;
      return false;
    }
    if (at == line.size()) return after(shown, from, blank) == shown.size();
    const bool number = shown[from] >= '0' && shown[from] <= '9';
    if (number ? !(line[at] >= '0' && line[at] <= '9') : line[at] != shown[from]) return false;
    if (number)
      at = after(line, at, of_number), from = after(shown, from, of_number);
    else if (shown[from] == ' ')
      at = after(line, at, blank), from = after(shown, from, blank);
    else
      ++at, ++from;
  }
  return true;
}
bool shows(const std::string& shown, const std::string& line) {
  return begins_with(line, after(line, 0, blank), shown, after(shown, 0, blank));
}

// Checks that every shown line is a line of the output, in this order.
void check_shown(const std::string& shown, const std::string& output) {
  std::istringstream wanted(shown), got(output);
  for (std::string line; std::getline(wanted, line);) {
    bool found = false;
    for (std::string candidate; !found && std::getline(got, candidate);) found = shows(line, candidate);
    INFO("shown: " << line << "\noutput:\n" << output);
    CHECK(found);
  }
}

void check_document(const fs::path& document, const Newcomer& newcomer, int seconds) {
  const std::vector<Block> blocks = blocks_of(document);
  const std::string log = newcomer.types(script_of(blocks), seconds);
  for (size_t i = 1; i < blocks.size(); ++i) {
    if (blocks[i].language != "text") continue;
    REQUIRE(blocks[i - 1].language == "sh");
    check_shown(blocks[i].text, output_of(log, blocks[i - 1].line));
  }
}

}  // namespace

TEST_CASE("docs: every block of the tutorial works from a clone in an empty home") {
  Newcomer newcomer;
  check_document(fs::path(HARMONICS_SOURCE_DIR) / "docs/tutorial.md", newcomer, 240);
  CHECK(fs::exists(newcomer.folder / "home/tutorial/digits.html"));
}

TEST_CASE("docs: every block of the page on migrating works from a clone in an empty home") {
  Newcomer newcomer;
  check_document(fs::path(HARMONICS_SOURCE_DIR) / "docs/migrating.md", newcomer, 240);
}

TEST_CASE("docs: every block of the page of the sample of LoRA works from a clone in an empty home") {
  Newcomer newcomer;
  check_document(fs::path(HARMONICS_SOURCE_DIR) / "samples/lora/README.md", newcomer, 240);
  CHECK(fs::exists(newcomer.folder / "clone/adapter/adapter_config.json"));
  CHECK(fs::exists(newcomer.folder / "clone/tuned/model.safetensors"));
}

TEST_CASE("docs: every block of the page on plugins works from an installation in an empty home") {
  Newcomer newcomer;
  const std::string prefix = newcomer.folder / "home/.local";
  REQUIRE(std::system(("cmake --install '" HARMONICS_BINARY_DIR "' --prefix '" + prefix + "' >/dev/null").c_str()) ==
          0);
  check_document(fs::path(HARMONICS_SOURCE_DIR) / "docs/plugins.md", newcomer, 240);
}

TEST_CASE("docs: every block of the page on embedding works from an installation in an empty home") {
  Newcomer newcomer;
  const std::string prefix = newcomer.folder / "home/.local";
  REQUIRE(std::system(("cmake --install '" HARMONICS_BINARY_DIR "' --prefix '" + prefix + "' >/dev/null").c_str()) ==
          0);
  check_document(fs::path(HARMONICS_SOURCE_DIR) / "docs/embedding.md", newcomer, 240);
}

TEST_CASE("docs: every piece of C++ is a plugin that passes its checks, or a definition that every plugin has") {
  int built = 0;
  for (const char* document : {"docs/plugins.md", "docs/adding.md", "docs/embedding.md"})
    for (const Block& b : blocks_of(fs::path(HARMONICS_SOURCE_DIR) / document)) {
      if (b.language != "cpp" || !b.title.empty()) continue;
      INFO(document << ":" << b.line);
      const Folder f;
      const std::string source = f.write("piece.cpp", b.text), library = f / "libpiece.so";
      REQUIRE(std::system(("timeout 120 c++ -std=c++17 -Wall -Wextra -Werror -fPIC -shared -I '" HARMONICS_SOURCE_DIR
                           "/include' '" +
                           source + "' -o '" + library + "'")
                              .c_str()) == 0);
      if (!has(b.text, "register_")) continue;
      const Result checked = harmonics("plugin check --calls 50000 " + library);
      CHECK(checked.code == 0);
      CHECK(has(checked.out, " passed, 0 failed"));
      ++built;
    }
  CHECK(built >= 2);
}

TEST_CASE("docs: the three-line program in the page on sending trains the run of the command beside it") {
  if (std::system("python3 -c '' 2>/dev/null") != 0) {
    WARN("skipped: no python3");
    return;
  }
  std::string command, program;
  for (const Block& b : blocks_of(fs::path(HARMONICS_SOURCE_DIR) / "docs/sending.md")) {
    if (b.language == "sh" && command.empty()) command = b.text.substr(0, b.text.find('\n'));
    if (b.title == "send.py") program = b.text;
  }
  REQUIRE(has(command, "tcp:127.0.0.1:5555?format=jsonl"));
  REQUIRE(has(program, "5555"));
  const std::string port = unused_port();
  command.replace(command.find("5555"), 4, port);
  program.replace(program.find("5555"), 4, port);
  const Folder f;
  f.write("digits.hmx",
          "harmonic digits {\n  producer image {4};\n  producer label {3} 1/1 image;\n  layer hidden {8};\n  layer "
          "output;\n"
          "  cycle { image -(relu)-> hidden -> output; output <-(cross_entropy)- label; }\n}\n");
  const std::string send = f.write("send.py",
                                   "import time\nfor i in range(300):\n  try:\n    exec(open('program.py').read())\n   "
                                   " break\n  except ConnectionRefusedError:\n    time.sleep(0.1)\n");
  f.write("program.py", program);
  f.write("script.sh", "set -eu\ncd '" + (f / "") + "'\npython3 send.py &\n" + command + " --json\nwait\n");
  const std::string run = "PATH='" HARMONICS_BINARY_DIR "/bin':$PATH timeout 100 bash '" + (f / "script.sh") + "' >'" +
                          (f / "out") + "' 2>'" + (f / "err") + "' </dev/null";
  INFO(send);
  CHECK(std::system(run.c_str()) == 0);
  INFO(read(f / "err"));
  CHECK(number(read(f / "out"), "samples") == 64);
}

TEST_CASE("docs: every command of the README works on the MNIST files from a clone in an empty home") {
  const std::string data = data_folder();
  if (data.empty()) return;
  Newcomer newcomer;
  for (const char* name : {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                           "t10k-labels-idx1-ubyte.gz"})
    fs::create_symlink(data + "/mnist/" + name, newcomer.folder / ("clone/" + std::string(name)));
  check_document(fs::path(HARMONICS_SOURCE_DIR) / "README.md", newcomer, 240);
  CHECK(fs::exists(newcomer.folder / "clone/mnist.html"));
}

TEST_CASE("docs: the two commands of the README exist and start") {
  const std::string text = read(fs::path(HARMONICS_SOURCE_DIR) / "README.md");
  for (const char* script : {"scripts/quickstart.sh", "scripts/test.sh"}) {
    CHECK(has(text, script));
    CHECK((fs::status(fs::path(HARMONICS_SOURCE_DIR) / script).permissions() & fs::perms::owner_exec) !=
          fs::perms::none);
  }
}

TEST_CASE("docs: every link to a file resolves") {
  const fs::path root = HARMONICS_SOURCE_DIR;
  std::vector<fs::path> documents = {root / "README.md", root / "CHANGELOG.md", root / "SECURITY.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md") documents.push_back(entry.path());
  for (const fs::path& document : documents) {
    const std::string text = read(document);
    for (size_t at = 0; (at = text.find("](", at)) != std::string::npos; at += 2) {
      const std::string to = text.substr(at + 2, text.find_first_of(")#", at) - at - 2);
      if (to.empty() || to.find_first_of(": ") != std::string::npos) continue;
      INFO(document << " links to " << to);
      CHECK(fs::exists(document.parent_path() / to));
    }
  }
}

TEST_CASE("docs: output shown in a document is compared with the printed output") {
  const std::string printed = "note: x\nepoch 1   loss 0.31   accuracy 85.04 %  14k samples/s\nyes\n";
  CHECK(shows("epoch 9 loss 0.5 accuracy …", "epoch 1   loss 0.31   accuracy 85.04 %  14k samples/s"));
  CHECK(shows("…loss 0.5", "epoch 1   loss 0.31"));
  CHECK_FALSE(shows("epoch 9 error 0.5", "epoch 1   loss 0.31"));
  CHECK_FALSE(shows("epoch 9 loss", "epoch x   loss 0.31"));
  CHECK_FALSE(shows("… epoch 9", "epoch 1"));
  check_shown("epoch 2 loss 0.7 …\nyes\n", printed);
}
