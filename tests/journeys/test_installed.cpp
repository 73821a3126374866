// Files that cmake --install puts into a prefix, and the program running there.
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

#include <set>
#include <vector>

using namespace journeys;

namespace {

struct Installed {
  Folder folder;
  std::string prefix = folder / "prefix";

  Installed() {
    REQUIRE(std::system(("timeout 60 cmake --install '" HARMONICS_BINARY_DIR "' --prefix '" + prefix + "' >/dev/null")
                            .c_str()) == 0);
  }

  // Runs in the root folder, with no environment except PATH.
  Result types(const std::string& command, int seconds = 60) const {
    const std::string script = folder.write("typed.sh", command + "\n");
    const int status = std::system(("cd / && env -i HOME='" + (folder / "home") + "' PATH='" + prefix +
                                    "/bin:/usr/bin:/bin' LANG=C.UTF-8 timeout " + std::to_string(seconds) + " bash '" +
                                    script + "' >'" + (folder / "out") + "' 2>'" + (folder / "err") + "' </dev/null")
                                       .c_str());
    Result r{WIFEXITED(status) ? WEXITSTATUS(status) : 128, read(folder / "out"), read(folder / "err")};
    UNSCOPED_INFO(command << "\nexit " << r.code << "\n" << r.out.substr(0, 2000) << r.err.substr(0, 2000));
    return r;
  }
};

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

// Checks that every file below one folder has an identical copy below the other. Skips `but`.
int same_files(const fs::path& source, const fs::path& installed, const std::string& but = "") {
  int files = 0;
  for (auto at = fs::recursive_directory_iterator(source); at != fs::recursive_directory_iterator(); ++at) {
    if (at->is_directory()) {
      if (at->path().filename() == but) at.disable_recursion_pending();
      continue;
    }
    const fs::path there = installed / fs::relative(at->path(), source);
    INFO(there);
    CHECK(fs::exists(there));
    CHECK(read(there) == read(at->path()));
    ++files;
  }
  return files;
}

std::string line_with(const std::string& text, const std::string& part) {
  for (const std::string& line : lines_of(text))
    if (has(line, part)) return line;
  return "";
}

}  // namespace

TEST_CASE("installation: has a manual page for every verb and completions for every shell") {
  const Installed installed;
  const std::vector<std::string> verbs = lines_of(harmonics("man --list").out);
  REQUIRE(verbs.size() >= 21);
  std::set<std::string> pages = {"harmonics.1.gz"};
  for (const std::string& verb : verbs) pages.insert("harmonics-" + verb + ".1.gz");
  const fs::path man = installed.prefix + "/share/man/man1";
  CHECK(names_in(man) == pages);
  const std::string overview = harmonics("man").out;
  for (const std::string& verb : verbs) {
    INFO(verb);
    std::string escaped = verb;
    if (const size_t hyphen = escaped.find('-'); hyphen != std::string::npos) escaped.insert(hyphen, "\\");
    CHECK(has(overview, "see \\fBharmonics\\-" + escaped + "\\fR(1)"));
    CHECK(installed.types("gzip -dc '" + (man / ("harmonics-" + verb + ".1.gz")).string() + "'").out ==
          harmonics("man " + verb).out);
  }
  for (const auto& [shell, file] :
       {std::pair("bash", "bash-completion/completions/harmonics"), std::pair("zsh", "zsh/site-functions/_harmonics"),
        std::pair("fish", "fish/vendor_completions.d/harmonics.fish")})
    CHECK(read(installed.prefix + "/share/" + file) == harmonics(std::string("completion ") + shell).out);
}

TEST_CASE("installation: has samples, documentation with working links, schemas and the frame header") {
  const Installed installed;
  const fs::path source = HARMONICS_SOURCE_DIR, share = installed.prefix + "/share/harmonics",
                 documentation = installed.prefix + "/share/doc/harmonics";
  CHECK(same_files(source / "samples", share / "samples") >= 8);
  CHECK(same_files(source / "docs", documentation / "docs", "schema") >= 16);
  CHECK(same_files(source / "docs/schema", share / "schema") >= 20);
  CHECK(read(share / "wire/hxs.proto") == read(source / "wire/hxs.proto"));
  for (const char* file : {"README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"})
    CHECK(read(documentation / file) == read(source / file));
  CHECK(has(read(documentation / "copyright"), "License: Apache-2.0"));
  for (const auto& entry : fs::recursive_directory_iterator(documentation)) {
    if (entry.path().extension() != ".md") continue;
    const std::string text = read(entry.path());
    for (size_t at = 0; (at = text.find("](", at)) != std::string::npos; at += 2) {
      const std::string to = text.substr(at + 2, text.find_first_of(")#", at) - at - 2);
      if (to.empty() || to.find_first_of(": ") != std::string::npos) continue;
      INFO(entry.path() << " links to " << to);
      CHECK(fs::exists(entry.path().parent_path() / to));
    }
  }
}

TEST_CASE("installation: after a move it finds its plugins and samples, and help names them") {
  Installed installed;
  fs::create_directories(installed.folder / "another place");
  const std::string moved = installed.folder / "another place/h";
  fs::rename(installed.prefix, moved);
  installed.prefix = moved;
  const std::string samples = moved + "/share/harmonics/samples";
  const Result version = installed.types("harmonics version");
  CHECK(has(version.out, "\nsamples in " + samples + "\ndocumentation in " + moved + "/share/doc/harmonics\n"));
  const Result about = installed.types("harmonics version --json");
  CHECK(has(about.out, "\"samples\":\"" + samples + "\""));
  CHECK(SchemaCheck::run(json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/version.json")),
                         json::parse(about.out)) == std::vector<std::string>{});
  for (const char* verb : {"", "run "}) {
    const std::string line = line_with(installed.types(std::string("harmonics ") + verb + "--help").out,
                                       "harmonics run '" + samples + "/mnist.hmx'");
    REQUIRE(line != "");
    CHECK(installed.types(line + " --steps 3 --quiet --json").code == 0);
  }
  const Result elsewhere = installed.types("harmonics run samples/mnist.hmx");
  CHECK(elsewhere.code == 66);
  CHECK(has(elsewhere.err, "\nhelp: the installed sample is '" + samples + "/mnist.hmx'\n"));
  CHECK_FALSE(has(installed.types("harmonics run samples/none.hmx").err, "installed sample"));
  const std::string digits =
      "--producer 'synth:digits?size=4000&seed=1' --producer 'synth:digits?size=4000&seed=1#label' ";
  const std::string test =
      "--test 'mnist_training_data=synth:digits?size=500&seed=2' --test "
      "'mnist_label_data=synth:digits?size=500&seed=2#label' ";
  fs::create_directories(installed.folder / "home");
  const Result again = installed.types("harmonics run '" + samples + "/mnist.hmx' " + digits + test +
                                       "--epochs 4 --save ~/w.safetensors 2>&1");
  CHECK(again.code == 0);
  const std::string tested = line_with(again.out, "test on 500 samples");
  REQUIRE(has(tested, "accuracy "));
  CHECK(std::stod(tested.substr(tested.find("accuracy ") + 9)) > 85);
  CHECK(fs::exists(installed.folder / "home/w.safetensors"));
}

TEST_CASE("installation: a build that is not installed names no folders, and its help names the clone's samples") {
  CHECK_FALSE(has(harmonics("version").out, " in /"));
  CHECK(has(harmonics("version --json").out, "\"samples\":null,\"documentation\":null"));
  CHECK(has(harmonics("--help").out, "harmonics run samples/mnist.hmx"));
}

TEST_CASE("installation: version --licenses prints names and texts of bundled libraries") {
  const Installed installed;
  const Result none = installed.types("harmonics version --licenses");
  CHECK(none.code == 0);
  CHECK(has(none.out, ": Apache-2.0\nno library is bundled: they come from the system"));
  CHECK(has(installed.types("harmonics version --licenses --json").out, "\"licenses\":[]"));

  const std::string folder = installed.prefix + "/share/doc/harmonics/licenses/";
  fs::create_directories(folder);
  std::ofstream(folder + "libraries.tsv")
      << "# head\nlibzmq5\t4.3.4-6\tzeromq3\tLGPL-3.0+\tlib/harmonics/shared/libzmq.so.5\tzeromq3.txt\n"
      << "libother1\t1\tzeromq3\tMIT\tlib/harmonics/shared/libother.so.1\tzeromq3.txt\n";
  std::ofstream(folder + "zeromq3.txt") << "the text\n";
  const Result some = installed.types("harmonics version --licenses");
  CHECK(some.code == 0);
  CHECK(has(some.out,
            "libzmq5 4.3.4-6 (source zeromq3): LGPL-3.0+\n  lib/harmonics/shared/libzmq.so.5\nlibother1 1 (source "
            "zeromq3): MIT\n"));
  CHECK(has(some.out, "\n== zeromq3.txt\nthe text\n"));
  CHECK(some.out.find("== zeromq3.txt") == some.out.rfind("== zeromq3.txt"));
  const Result rows = installed.types("harmonics version --licenses --json");
  CHECK(has(rows.out, "\"package\":\"libother1\""));
  CHECK(SchemaCheck::run(json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/version.json")),
                         json::parse(rows.out)) == std::vector<std::string>{});

  std::ofstream(folder + "libraries.tsv", std::ios::app) << "libzmq5\t4.3.4-6\n";
  const Result damaged = installed.types("harmonics version --licenses");
  CHECK(damaged.code == 66);
  CHECK(damaged.err ==
        "error: " + folder +
            "libraries.tsv:4: not a row of six columns, the last one a file's name\nhelp: install the package again\n");
  CHECK(installed.types("harmonics man --list run").code == 2);
}
