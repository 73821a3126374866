// The mistakes people make first: what they type and everything they are told, in mistakes/*.txt. A file says which commands
// prepare it ("prepare: ..."), the command that is wrong ("$ harmonics ..."), its exit code and standard error.
#include "tests/journeys/shell.hpp"

#include <algorithm>

using namespace journeys;

namespace {

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) text.replace(at, what.size(), with);
  return text;
}

struct Mistake {
  std::vector<std::string> prepare;
  std::string command, error;
  int code = -1;
};

Mistake read_mistake(const fs::path& path) {
  Mistake m;
  std::stringstream in(read(path));
  for (std::string line; std::getline(in, line);) {
    if (m.code >= 0) m.error += line + "\n";
    else if (line.starts_with("prepare: ")) m.prepare.push_back(line.substr(9));
    else if (line.starts_with("$ harmonics ")) m.command = line.substr(12);
    else if (line.starts_with("exit ")) m.code = std::stoi(line.substr(5));
    else FAIL(path.string() << " is not written as a mistake: " << line);
  }
  REQUIRE_FALSE(m.command.empty());
  return m;
}

// Typed in a shell that stands in the folder.
Result typed(const Folder& f, const std::string& command) {
  Folder out;
  const int status = std::system(("cd '" + (f / "") + "' && export SAMPLES='" + kSamples + "' && timeout 60 " + command + " >'" + (out / "out") + "' 2>'" + (out / "err") + "' </dev/null").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(out / "out"), read(out / "err")};
}

}  // namespace

TEST_CASE("typical mistakes are told with what to do about them") {
  const fs::path folder = fs::path(HARMONICS_SOURCE_DIR) / "tests/journeys/mistakes";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() >= 14);
  for (const fs::path& path : files) {
    INFO(path.filename().string());
    const Mistake m = read_mistake(path);
    Folder f;
    for (const std::string& step : m.prepare) REQUIRE(typed(f, "sh -c '" + replaced(replaced(step, "'", "'\\''"), "$HARMONICS", kProgram) + "'").code == 0);
    const Result r = typed(f, "'" + kProgram + "' " + m.command);
    CHECK(r.code == m.code);
    CHECK(replaced(r.err, f / "", "DIR/") == m.error);
    // Each names what to do: a help line, or the correction within the message.
    CHECK((has(r.err, "help: ") || has(r.err, "; ")));
  }
}
