// Standard output and standard error that cannot be written, and text that must not reach a terminal.
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

#include <csignal>

#include <fcntl.h>
#include <unistd.h>

using namespace journeys;

namespace {

constexpr int kClosed = -1;

// A file descriptor for one run of the program.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

  static int of(const std::string& what) {
    if (what == "full") return ::open("/dev/full", O_WRONLY | O_CLOEXEC);
    if (what == "pipe without reader") {
      int ends[2];
      REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
      ::close(ends[0]);
      return ends[1];
    }
    if (what == "terminal that is gone") {
      const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
      REQUIRE((master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0));
      const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
      REQUIRE(slave >= 0);
      ::close(master);
      return slave;
    }
    return kClosed;
  }

 private:
  int number_;
};

// Returns the exit code with descriptor `which` replaced; 128 + the signal if one ends it.
int code_with(int which, const std::string& what, const std::string& arguments) {
  const Descriptor given(Descriptor::of(what));
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::alarm(120);
    std::signal(SIGPIPE, SIG_DFL);
    const int nowhere = ::open("/dev/null", O_RDWR);
    for (int file = 0; file <= 2; ++file) ::dup2(nowhere, file);
    ::close(nowhere);
    if (given.number() >= 0)
      ::dup2(given.number(), which);
    else
      ::close(which);
    ::execl("/bin/sh", "sh", "-c", ("exec '" + kProgram + "' " + arguments).c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  UNSCOPED_INFO("descriptor " << which << ": " << what << "; harmonics " << arguments << "\nexit " << code);
  return code;
}

const std::string kTrainOnce = "run " + kSamples +
                               "mnist.hmx --producer 'synth:digits?size=200' --producer 'synth:digits?size=200#label' "
                               "--batch 20 --epochs 1 --threads 1 --seed 1 ";
const char* const kFlow = "harmonic g { producer x {1}; layer o {1}; cycle { x -(affine)-> o; } }\n";

bool is_clean(const std::string& text) {
  return std::none_of(
             text.begin(), text.end(),
             [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }) &&
         !has(text, "\xc2\x9b");
}

// Sequences that set a terminal's title and clear the screen, also with C1 control characters.
const std::string kCommands =
    "\x1b]0;title\x07\x1b[2J\xc2\x9b"
    "2J\r";

}  // namespace

TEST_CASE("output: unwritable standard error ends no run, and learned weights are kept") {
  Folder f;
  const std::string weights = f / "w.safetensors";
  REQUIRE(harmonics(kTrainOnce + "--save " + weights).code == 0);
  const std::string undisturbed = read(weights);
  for (const char* what : {"closed", "full", "pipe without reader", "terminal that is gone"}) {
    fs::remove(weights);
    const std::string kept = f / what;
    CHECK(code_with(2, what,
                    kTrainOnce + "--checkpoint '" + kept + "' --log " + (f / "l.csv") + " --log-every 1 --save " +
                        weights) == 0);
    CHECK(read(weights) == undisturbed);  // and it contains no message
    CHECK(harmonics("ckpt verify '" + kept + "'").code == 0);
    CHECK(read(f / "l.csv").rfind("kind,", 0) == 0);
  }
}

TEST_CASE("output: unwritable standard error changes no exit code of any verb") {
  Folder f;
  const std::string wrong = f.write("wrong.hmx", "harmonic g { layer }\n"), none = f / "none",
                    flow = f.write("g.hmx", kFlow), torn = f.write("torn.csv", "1,2\n1\n");
  const std::pair<std::string, int> uses[] = {{"validate " + wrong, 78},
                                              {"run " + none, 66},
                                              {"infer " + flow + " --producer " + torn, 65},
                                              {"inspect " + torn, 65},
                                              {"explain " + wrong, 78},
                                              {"send tcp:127.0.0.1:1 --from " + none, 66},
                                              {"receive " + none, 66},
                                              {"ctl " + none + " status", 69},
                                              {"top " + none, 69},
                                              {"tap " + none + " x", 69},
                                              {"ckpt list " + none, 66},
                                              {"list nonsense", 2},
                                              {"plugin check " + none, 1},
                                              {"nonsense", 2},
                                              {"version --config " + none, 66},
                                              {"list metrics", 0}};
  for (const auto& [use, code] : uses)
    for (const char* what : {"closed", "full", "pipe without reader"}) CHECK(code_with(2, what, use) == code);
}

TEST_CASE("output: unwritable standard output is an error of every verb that prints") {
  Folder f;
  const std::string flow = f.write("g.hmx", kFlow), data = f.write("x.csv", "1\n2\n");
  const std::vector<std::string> uses = {
      "list metrics",
      "version --json",
      "--help",
      "explain " + kSamples + "mnist.hmx --producer synth:digits --producer synth:digits#label",
      "inspect " + data,
      "infer --untrained " + flow + " --producer " + data,
      "receive " + data,
      "config show run",
      "man run",
      "validate " + flow + " --json",
      kTrainOnce + "--json"};
  for (const std::string& use : uses) {
    CHECK(code_with(1, "full", use) == 73);
    CHECK(code_with(1, "closed", use) == 73);
    CHECK(code_with(1, "pipe without reader", use) == 128 + SIGPIPE);
  }
  const std::string weights = f / "w.safetensors";
  CHECK(code_with(1, "full", kTrainOnce + "--json --save " + weights) == 73);
  CHECK(fs::exists(weights));
}

TEST_CASE("output: control characters of names in data do not reach the terminal") {
  Folder f;
  const std::string csv = f.write("x.csv", "a" + kCommands + ",b\n1,2\n3,4\n"),
                    words = f.write("y.csv", "c\nred" + kCommands + "\nblue\n"),
                    lines = f.write("z.jsonl", "{\"a\\u001b[2J\": 1}\n{\"b\": 2}\n"),
                    pattern = f.write("k" + kCommands + ".csv", "1,2\n1\n");
  for (const std::string& use : {"inspect " + csv, "inspect '" + csv + "#none'", "inspect " + words, "inspect " + lines,
                                 "inspect '" + lines + "#q'", "inspect '" + pattern + "'", "validate '" + pattern + "'",
                                 "list '" + kCommands + "'", "run '" + kCommands + "'", "'" + kCommands + "'"}) {
    const Result r = harmonics(use);
    CHECK(is_clean(r.out + r.err));
  }
  CHECK(has(harmonics("inspect '" + words + "?header=true'").out, "red\\x1b]0;title\\x07\\x1b[2J\\x9b2J"));
}

TEST_CASE("output: names that are not UTF-8 still give valid JSON") {
  Folder f;
  const std::string name = f / "caf\xe9\x1b\xc2\x9b.csv", flow = f / "caf\xe9.hmx";
  std::ofstream(name) << "1\n2\n";
  std::ofstream(flow) << kFlow;
  const std::string wrong = f / "wrong\xe9.hmx";
  std::ofstream(wrong) << "harmonic g { layer }\n";
  const std::vector<std::string> uses = {
      "inspect '" + name + "'",
      "validate '" + flow + "' '" + wrong + "'",
      "explain '" + flow + "'",
      "infer --untrained '" + flow + "' --producer '" + name + "' --consumer '" + (f / "o\xe9.csv") + "'",
      "receive '" + name + "' --to '" + (f / "r\xe9.csv") + "'",
      "plugin doctor '" + name + "'",
      "plugin list",
      "config show --config '" + f.write("c\xe9.toml", "batch = 3\n") + "'"};
  for (const std::string& use : uses) {
    const Result r = harmonics(use + " --json");
    REQUIRE(r.out.size() > 2);
    const size_t end = r.out.rfind('\n', r.out.size() - 2);
    json::error_code wrong_json;
    json::parse(r.out.substr(end == std::string::npos ? 0 : end + 1), wrong_json);
    CHECK_FALSE(wrong_json);
    CHECK(is_clean(r.out));
  }
}
