// Sources of settings: flags, environment, files, defaults; and errors in them.
#include "tests/journeys/shell.hpp"

#include <sys/stat.h>
#include <unistd.h>

using namespace journeys;

namespace {

// Folders and files for every location of settings.
struct Places {
  Folder f;
  Places() {
    fs::create_directories(f / "here");
    fs::create_directories(f / "config/harmonics");
  }
  // Runs in the folder "here", with these variables set.
  Result run(const std::string& arguments, const std::string& variables = "") const {
    const std::string command = "cd '" + (f / "here") + "' && XDG_CONFIG_HOME='" + (f / "config") + "' " + variables +
                                " timeout 60 '" + kProgram + "' " + arguments + " >'" + (f / "out") + "' 2>'" +
                                (f / "err") + "' </dev/null";
    const int status = std::system(command.c_str());
    Result r{WEXITSTATUS(status), read(f / "out"), read(f / "err")};
    UNSCOPED_INFO(arguments << "\nexit " << r.code << "\n" << r.out << r.err);
    return r;
  }
};

const std::string kShortRun =
    "run " + kSamples +
    "mnist.hmx --producer 'synth:digits?size=256' --producer 'synth:digits?size=256#label' --epochs 1 --quiet --json";

}  // namespace

TEST_CASE("configuration: flags precede the environment, which precedes files, nearer before farther") {
  Places p;
  const auto steps = [&](const std::string& flag = "", const std::string& variables = "") {
    return number(p.run(kShortRun + " " + flag, variables).out, "steps");
  };
  CHECK(steps() == 4);  // batches of 64
  p.f.write("config/harmonics/config.toml", "batch = 128\n");
  CHECK(steps() == 2);
  p.f.write("here/harmonics.toml", "[run]\nbatch = 32\n");
  CHECK(steps() == 8);
  const std::string other = p.f.write("other.toml", "batch = 16\n");
  CHECK(steps("--config " + other) == 16);
  CHECK(steps("--config " + other, "HARMONICS_BATCH=8") == 32);
  CHECK(steps("--batch 256 --config " + other, "HARMONICS_BATCH=8") == 1);
}

TEST_CASE("configuration: config show prints each setting and its origin") {
  Places p;
  const Result nothing = p.run("config show");
  CHECK(nothing.code == 0);
  CHECK(nothing.out ==
        "# nothing is set; flags win over HARMONICS_FLAG, --config FILE, and then:\n#   harmonics.toml\n#   " +
            (p.f / "config") + "/harmonics/config.toml\n#   /etc/harmonics/config.toml\n");
  p.f.write("config/harmonics/config.toml", "[run]\nmetric = [\"f1\", \"topk(3)\"]\n");
  p.f.write("here/harmonics.toml", "[run]\nbatch = 32\nseed = 7\nquiet = true\noptimizer = \"sgd(lr=0.1)\"\n");
  const Result run = p.run("config show run --origin", "HARMONICS_LR=0.5 HARMONICS_METRIC='auc; f1'");
  REQUIRE(run.code == 0);
  for (const char* line : {"batch = 32                               # ./harmonics.toml:2\n",
                           "lr = 0.5                                 # environment HARMONICS_LR\n",
                           "metric = [\"auc\", \"f1\"]                   # environment HARMONICS_METRIC\n",
                           "optimizer = \"sgd(lr=0.1)\"                # ./harmonics.toml:5\n",
                           "quiet = true                             # ./harmonics.toml:4\n",
                           "accumulate = 1                           # default\n"}) {
    INFO(line);
    CHECK(has(run.out, line));
  }
  const Result set = p.run("config show");
  CHECK(has(set.out, "[run]\n"));
  CHECK_FALSE(has(set.out, "accumulate"));
  CHECK_FALSE(has(set.out, "[bench]"));
}

TEST_CASE("configuration: an error in a file has its line and exit code 78") {
  Places p;
  const auto message = [&](const std::string& text) {
    p.f.write("here/harmonics.toml", text);
    const Result r = p.run("version");
    CHECK(r.code == 78);
    return r.err;
  };
  CHECK(message("# mine\nbach = 32\n") ==
        "error: ./harmonics.toml:2: unknown key 'bach'\nhelp: did you mean 'batch'?\n");
  CHECK(message("[run]\nbach = 32\n") ==
        "error: ./harmonics.toml:2: unknown key 'bach' of 'run'\nhelp: did you mean 'batch'?\n");
  CHECK(message("# é\n[=]\n") ==
        "error: ./harmonics.toml:2: a table without a name\nhelp: [run] begins the settings of 'harmonics run'\n");
  CHECK(message("metric = ['é', \"\\\"é\"]\nb\xc3\xa4tch = 3\n") ==
        "error: ./harmonics.toml:2: a non-ASCII character outside a string\n"
        "help: names are those of verbs and flags; write strings in quotes\n");
  CHECK(message("save = \"\"\"a\n\"\"\"\n") ==
        "error: ./harmonics.toml:1: a string over several lines\nhelp: use one quote on each side: settings have one "
        "line\n");
  CHECK(message("[rum]\nbatch = 32\n") ==
        "error: ./harmonics.toml:1: there is no verb 'rum'\nhelp: did you mean '[run]'?\n");
  CHECK(message("[run]\nbatch = [1, 2]\n") == "error: ./harmonics.toml:2: 'batch' takes one value, not a list\n");
  CHECK(message("[run]\nquiet = \"yes\"\n") == "error: ./harmonics.toml:2: 'quiet' is true or false\n");
  CHECK(message("[run]\nbatch = 1979-05-27\n") ==
        "error: ./harmonics.toml:2: '1979-05-27' is not a string, a number, true or false\nhelp: write strings in "
        "quotes: save = \"model.safetensors\"\n");
  CHECK(message("[run]\nbatch = true\n") ==
        "error: ./harmonics.toml:2: the value of 'batch' is neither a string nor a number\nhelp: write strings in "
        "quotes\n");
  CHECK(message("batch 32\n") ==
        "error: ./harmonics.toml:1: 'batch' is followed by no '='\nhelp: settings are written as in TOML: batch = 128, "
        "and [run] before those of one verb\n");
  p.f.write("here/harmonics.toml", "[run]\nbatch = 0\n");
  const Result range = p.run(kShortRun);
  CHECK(range.code == 78);
  CHECK(range.err.find("error: ./harmonics.toml:2: --batch: ") == 0);
  CHECK(has(range.err, "help: 'harmonics run --help' explains --batch\n"));
  fs::remove(p.f / "here/harmonics.toml");
  const Result variable = p.run(kShortRun, "HARMONICS_BATCH=many");
  CHECK(variable.code == 78);
  CHECK(variable.err.find("error: environment HARMONICS_BATCH: ") == 0);
  const Result missing = p.run("version --config nowhere.toml");
  CHECK(missing.code == 66);
  CHECK(missing.err ==
        "error: cannot read 'nowhere.toml': No such file or directory\n"
        "help: it should contain settings; 'harmonics config show' lists the files in effect\n");
}

TEST_CASE("configuration: the current folder's file sets only how much and how a run learns") {
  Places p;
  const std::string weights = p.f / "w.safetensors", log = p.f / "l.csv";
  const std::string text =
      "plugin = [\"./evil.so\"]\n[run]\nsteps = 2\nserve = [\"127.0.0.1:0\"]\ntoken = \"known\"\nsave = \"" + weights +
      "\"\nlog = [\"" + log + "\"]\n[override]\nrelu = \"evil\"\n";
  p.f.write("here/harmonics.toml", text);
  const std::string left_out =
      "note: 'log', 'override', 'plugin', 'save', 'serve', 'token' of ./harmonics.toml are ignored: a file in the "
      "current folder may only set training options; --config harmonics.toml accepts all keys\n";
  const std::string run = kShortRun.substr(0, kShortRun.find(" --quiet")) + " --json";
  const Result r = p.run(run);
  CHECK(r.code == 0);
  CHECK(number(r.out, "steps") == 2);
  CHECK(r.err.rfind(left_out + "note: ./harmonics.toml sets steps = 2\n", 0) == 0);
  CHECK_FALSE(has(r.err, "serving"));
  CHECK_FALSE((fs::exists(weights) || fs::exists(log)));
  for (const char* verb : {"list metrics", "version", "inspect conv", "validate x.hmx", "config show"})
    CHECK(p.run(verb).err.find(left_out) == 0);
  CHECK_FALSE(has(p.run(run + " --quiet").err, "note: ./harmonics.toml"));
  const Result shown = p.run("config show run --origin");
  CHECK(has(shown.out, "steps = 2                                # ./harmonics.toml:3\n"));
  CHECK_FALSE(has(shown.out, "save = "));
  // A file named by --config has no such restriction.
  p.f.write("here/harmonics.toml", "[run]\nsteps = 2\nsave = \"" + weights + "\"\n");
  const Result named = p.run(run + " --config harmonics.toml");
  CHECK(named.code == 0);
  CHECK(fs::exists(weights));
  CHECK_FALSE(has(named.err, "are ignored"));
}

TEST_CASE("configuration: a current folder's file that others can change is ignored") {
  Places p;
  const std::string file = p.f.write("here/harmonics.toml", "batch = 32\n");
  const auto steps = [&] { return p.run(kShortRun.substr(0, kShortRun.find(" --quiet")) + " --json"); };
  CHECK(number(steps().out, "steps") == 8);
  REQUIRE(::chmod(file.c_str(), 0666) == 0);
  const Result open = steps();
  CHECK(number(open.out, "steps") == 4);
  CHECK(open.err.rfind("note: ./harmonics.toml is ignored: it is writable by all users\n", 0) == 0);
  if (::geteuid() != 0) return;  // only root can change a file's owner
  REQUIRE((::chmod(file.c_str(), 0644) == 0 && ::chown(file.c_str(), 1001, 1001) == 0));
  CHECK(p.run("version").err == "note: ./harmonics.toml is ignored: it belongs to another user (number 1001)\n");
  const std::string own = p.f.write("own.toml", "batch = 32\n");
  fs::remove(file);
  REQUIRE((::symlink(own.c_str(), file.c_str()) == 0 && ::lchown(file.c_str(), 1001, 1001) == 0));
  CHECK(p.run("version").err == "note: ./harmonics.toml is ignored: it is a link of another user\n");
}

TEST_CASE("configuration: a file may end in a carriage return, and a pipe without a writer is refused") {
  Places p;
  const Result torn = p.run("version --config " + p.f.write("c.toml", "metric = [\"f1\"\r"));
  CHECK(torn.code == 78);
  CHECK(has(torn.err, "'' instead of the ',' or ']' of a list"));
  const std::string pipe = p.f / "pipe.hmx";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const Result silent = p.run("validate " + pipe);
  CHECK(silent.code == 66);
  CHECK(has(silent.err, "cannot read '" + pipe + "': it is a pipe without a writer"));
  const std::string flow = p.f.write("g.hmx", "harmonic g { producer x; layer o {1}; cycle { x -(affine)-> o; } }\n");
  CHECK(std::system(("bash -c \"'" + kProgram + "' validate <(cat '" + flow + "')\" >/dev/null").c_str()) == 0);
}

TEST_CASE("configuration: --engine is --device, with a note") {
  Places p;
  const Result run = p.run(kShortRun + " --engine=cpu");
  CHECK(run.code == 0);
  CHECK_FALSE(has(run.err, "--engine"));  // --quiet
  const Result noted = p.run(kShortRun.substr(0, kShortRun.find(" --quiet")) + " --engine cpu");
  CHECK(noted.code == 0);
  CHECK(has(noted.err, "note: --engine is --device here\n"));
  const Result unknown = p.run(kShortRun + " --engine nowhere");
  CHECK(unknown.code != 0);
  CHECK(has(unknown.err, "nowhere"));
  const Result without = p.run("version --engine cpu");
  CHECK(without.code == 2);
  CHECK(has(without.err, "'version' has no flag --engine"));
}
