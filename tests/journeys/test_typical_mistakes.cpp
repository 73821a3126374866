// Typical mistakes: the command, all of standard error and the exit code, in the files of mistakes/. Each file is
// executed from top to bottom in a fresh folder:
//
//   # a comment
//   -- g.hmx                          a file of the folder; a line "--" ends it
//   % harmonics run g.hmx ...         preparation; exits with 0
//   ? lib/libx.so                     the next mistake applies only to builds with this file
//   $ harmonics run g.hmx --lr -1     the mistake, as typed in a shell
//   error: --lr: '-1' is ...          all of standard error
//   exit 2
//
// HARMONICS_MISTAKES_TO=DIR test_journeys '[.mistakes]' writes the same files with the actual output into DIR, for
// comparison.
#include "tests/journeys/shell.hpp"

#include <algorithm>

using namespace journeys;

namespace {

std::string with_replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

struct Mistake {
  std::string command, expected, said;
  int line, code = -1, exited = -1;
};

class MistakeFile {
 public:
  explicit MistakeFile(const std::string& name) : name_(name), in_(read(folder() / (name + ".txt"))) {
    for (std::string line; std::getline(in_, line);) read_line(line);
    REQUIRE_FALSE(in_error_);
  }

  static fs::path folder() { return fs::path(HARMONICS_SOURCE_DIR) / "tests/journeys/mistakes"; }

  const std::vector<Mistake>& mistakes() const { return mistakes_; }
  // Returns the file with the actual output.
  const std::string& actual() const { return actual_; }

 private:
  // Runs a shell command in the folder.
  Result typed(const std::string& command) const {
    const fs::path bin = fs::path(kProgram).parent_path();
    const std::string script = folder_.write(
        ".typed", "cd '" + (folder_ / "") + "'; PATH='" + bin.string() + "':\"$PATH\"; SAMPLES='" + kSamples +
                      "'; XDG_CONFIG_HOME=/nonexistent; export PATH SAMPLES XDG_CONFIG_HOME\n" + command + "\n");
    const int status = std::system(
        ("timeout 60 sh '" + script + "' >'" + (folder_ / ".out") + "' 2>'" + (folder_ / ".err") + "' </dev/null")
            .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, "", read(folder_ / ".err")};
  }

  std::string without_paths(std::string text) const {
    const std::string folder = folder_ / "";
    text = with_replaced(with_replaced(std::move(text), folder, "DIR/"), folder.substr(0, folder.size() - 1), "DIR");
    text = with_replaced(std::move(text), kState, "STATE");
    return with_replaced(std::move(text), kSamples, "SAMPLES/");
  }

  void read_line(const std::string& line) {
    ++number_;
    if (in_error_) return read_error(line);
    actual_ += line + "\n";
    if (line.starts_with("-- ")) return read_file(line.substr(3));
    if (line.starts_with("% ")) {
      const Result r = typed(line.substr(2));
      INFO(name_ << ":" << number_ << ": " << line << "\n" << r.err);
      REQUIRE(r.code == 0);
    } else if (line.starts_with("? ")) {
      skips_ = !fs::exists(fs::path(HARMONICS_BINARY_DIR) / line.substr(2));
      if (skips_) WARN("skipped: this build has no " << line.substr(2));
    } else if (line.starts_with("$ ") && skips_) {
      in_error_ = true;
    } else if (line.starts_with("$ ")) {
      const Result r = typed(line.substr(2));
      Mistake m{line.substr(2), "", without_paths(r.err), number_};
      m.exited = r.code;
      actual_ += m.said + "exit " + std::to_string(r.code) + "\n";
      mistakes_.push_back(std::move(m));
      in_error_ = true;
    } else if (!line.empty() && line[0] != '#') {
      FAIL(name_ << ":" << number_ << ": '" << line << "' is neither a comment, a file, a preparation nor a mistake");
    }
  }

  void read_file(const std::string& file) {
    std::string text, line;
    for (bool ended = false; !ended && std::getline(in_, line);) {
      ++number_;
      actual_ += line + "\n";
      ended = line == "--";
      if (!ended) text += line + "\n";
    }
    REQUIRE(line == "--");
    folder_.write(file, text);
  }

  void read_error(const std::string& line) {
    const bool ends = line.starts_with("exit ");
    in_error_ = !ends;
    if (skips_) {
      actual_ += line + "\n";
      skips_ = !ends;
    } else if (ends) {
      mistakes_.back().code = std::stoi(line.substr(5));
    } else {
      mistakes_.back().expected += line + "\n";
    }
  }

  std::string name_, actual_;
  std::stringstream in_;
  Folder folder_;
  std::vector<Mistake> mistakes_;
  int number_ = 0;
  bool in_error_ = false, skips_ = false;
};

std::vector<std::string> names_of_files() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(MistakeFile::folder())) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

void check_mistakes(const std::string& name) {
  const MistakeFile file(name);
  for (const Mistake& m : file.mistakes()) {
    INFO("tests/journeys/mistakes/" << name << ".txt:" << m.line << "\n$ " << m.command);
    CHECK(m.said == m.expected);
    CHECK(m.exited == m.code);
    CHECK(m.said.find('\x1b') == std::string::npos);
    if (name == "requests") continue;  // HTTP answers, without help lines
    // Each output has a remedy: a help line, a usage, or the correction within the message.
    const auto corrects = [&](const char* words) { return has(m.said, words); };
    const std::vector<const char*> corrections{"help: ",    "note: ",  "; ",        "expected ",
                                               " must be ", " takes ", " without ", " is true or false"};
    CHECK(std::any_of(corrections.begin(), corrections.end(), corrects));
  }
}

const std::vector<std::string> kMistakeFiles = {
    "addresses", "command_line", "data",    "flows", "generation", "models",       "names",   "requests", "serving",
    "settings",  "stages",       "streams", "tools", "training",   "transformers", "typical", "weights"};

}  // namespace

TEST_CASE("mistakes: the command line") { check_mistakes("command_line"); }
TEST_CASE("mistakes: names") { check_mistakes("names"); }
TEST_CASE("mistakes: flows") { check_mistakes("flows"); }
TEST_CASE("mistakes: addresses") { check_mistakes("addresses"); }
TEST_CASE("mistakes: data") { check_mistakes("data"); }
TEST_CASE("mistakes: weights") { check_mistakes("weights"); }
TEST_CASE("mistakes: settings") { check_mistakes("settings"); }
TEST_CASE("mistakes: several stages") { check_mistakes("stages"); }
TEST_CASE("mistakes: streams") { check_mistakes("streams"); }
TEST_CASE("mistakes: tools") { check_mistakes("tools"); }
TEST_CASE("mistakes: language models") { check_mistakes("generation"); }
TEST_CASE("mistakes: configurations of train") { check_mistakes("training"); }
TEST_CASE("mistakes: files of models") { check_mistakes("transformers"); }
TEST_CASE("mistakes: models and folders") { check_mistakes("models"); }
TEST_CASE("mistakes: serving") { check_mistakes("serving"); }
TEST_CASE("mistakes: requests") { check_mistakes("requests"); }
TEST_CASE("mistakes: typical ones") { check_mistakes("typical"); }

TEST_CASE("mistakes: every file has a test, and there are many mistakes in total") {
  CHECK(names_of_files() == kMistakeFiles);
  size_t all = 0;
  for (const std::string& name : kMistakeFiles) {
    std::stringstream in(read(MistakeFile::folder() / (name + ".txt")));
    for (std::string line; std::getline(in, line);) all += line.starts_with("$ ");
  }
  CHECK(all >= 150);
}

TEST_CASE("mistakes: actual output, for reading", "[.mistakes]") {
  const char* const to = std::getenv("HARMONICS_MISTAKES_TO");
  if (!to) {
    WARN("HARMONICS_MISTAKES_TO says where they go");
    return;
  }
  fs::create_directories(to);
  for (const std::string& name : names_of_files())
    std::ofstream(fs::path(to) / (name + ".txt")) << MistakeFile(name).actual();
}
