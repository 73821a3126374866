// Weights that no flag saves: a run prints a warning at the start, and keeps a copy at the end.
#include "tests/journeys/background.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

#include <sys/stat.h>
#include <unistd.h>

using namespace journeys;

namespace {

// Trains y = a - b in steps of four samples, with a separate state folder.
struct Unsaved {
  Folder f;
  std::string flow, streams, kept;

  Unsaved() {
    std::string xs, ys;
    for (int i = 0; i < 20; ++i)
      xs += std::to_string(0.1 * i) + "," + std::to_string(0.5 - 0.05 * i) + "\n",
          ys += std::to_string(0.15 * i - 0.5) + "\n";
    flow = f.write(
        "g.hmx",
        "harmonic g { producer x; producer y; layer o {1}; cycle (epochs 2, batch=4) { x -> o; o <-(mse)- y; } }\n");
    streams = " --producer x=" + f.write("x.csv", xs) + " --producer y=" + f.write("y.csv", ys) + " ";
    kept = f / "state/harmonics/kept";
  }
  std::string variables() const { return "XDG_STATE_HOME='" + (f / "state") + "'"; }
  Result run(const std::string& more, const std::string& with = "") const {
    return harmonics_in(variables() + " " + with, "run " + flow + streams + more);
  }
  std::vector<std::string> copies() const {
    std::vector<std::string> all;
    if (fs::exists(kept))
      for (const auto& entry : fs::directory_iterator(kept)) all.push_back(entry.path().string());
    std::sort(all.begin(), all.end());
    return all;
  }
};

mode_t mode_of(const std::string& path) {
  struct stat state {};
  REQUIRE(::stat(path.c_str(), &state) == 0);
  return state.st_mode & 0777;
}

// Returns the path after `words` on their line.
std::string named_by(const std::string& text, const std::string& words) {
  const size_t at = text.find(words);
  REQUIRE(at != std::string::npos);
  return text.substr(at + words.size(), text.find('\n', at) - at - words.size());
}

}  // namespace

TEST_CASE("kept weights: a run without --save warns at its start, and keeps a copy for its user") {
  const Unsaved u;
  const Result r = u.run("");
  REQUIRE(r.code == 0);
  const size_t said =
      r.err.find("note: the weights are not saved: --save FILE saves them; a copy will be kept in " + u.kept);
  REQUIRE(said != std::string::npos);
  CHECK(said < r.err.find("epoch 1"));
  const std::string path = named_by(r.err, "kept weights: ");
  CHECK(has(r.err, "to use them:  harmonics infer " + u.flow + " --weights " + path + " --producer ADDRESS\n"));
  CHECK(u.copies() == std::vector<std::string>{path});
  CHECK(mode_of(path) == 0600);
  CHECK(mode_of(u.kept) == 0700);
  CHECK(mode_of(u.f / "state") == 0700);

  const std::string saved = u.f / "w.safetensors";
  REQUIRE(u.run("--save " + saved).code == 0);
  CHECK(read(path) == read(saved));
  CHECK(harmonics("infer " + u.flow + " --weights " + path + " --producer x=" + (u.f / "x.csv") + " --quiet").code ==
        0);
}

TEST_CASE("kept weights: no copy if a flag saves them, none is wanted, or nothing was learned") {
  const Unsaved u;
  for (const std::string& flags : {"--save " + (u.f / "w.safetensors"), "--checkpoint " + (u.f / "runs"),
                                   std::string("--no-keep"), std::string("--epochs 0")}) {
    const Result r = u.run(flags);
    CHECK(r.code == 0);
    CHECK(u.copies().empty());
    CHECK_FALSE(has(r.err, "kept weights"));
    CHECK(has(r.err, "the weights are not saved") == (flags == "--no-keep" || flags == "--epochs 0"));
    CHECK_FALSE((flags == "--no-keep" && has(r.err, "a copy will be kept")));
  }
  const Result quiet = u.run("--quiet --json");
  CHECK(quiet.err.empty());
  REQUIRE(u.copies().size() == 1);
  const json::value printed = json::parse(quiet.out);
  CHECK(SchemaCheck::run(schema("run"), printed).empty());
  CHECK(printed.at("kept") == json::value(u.copies().front()));
}

TEST_CASE("kept weights: the last three copies remain, and other files of the folder stay untouched") {
  const Unsaved u;
  fs::create_directories(u.kept);
  const std::string own = u.kept + "/mine.safetensors";
  std::ofstream(own) << "mine";
  std::vector<std::string> runs;
  for (int i = 0; i < 5; ++i) {
    const Result r = u.run("--json --seed " + std::to_string(i));
    REQUIRE(r.code == 0);
    runs.push_back(std::string(json::parse(r.out).at("kept").as_string()));
    fs::last_write_time(runs.back(), fs::file_time_type::clock::now() - std::chrono::hours(10 - i));
  }
  std::vector<std::string> expected{own, runs[2], runs[3], runs[4]};
  std::sort(expected.begin(), expected.end());
  CHECK(u.copies() == expected);
  CHECK(read(own) == "mine");
}

TEST_CASE("kept weights: copies total at most one gibibyte, and the oldest are removed") {
  const Unsaved u;
  fs::create_directories(u.kept);
  const std::string large = u.kept + "/g-20200101T000000-1.safetensors",
                    small = u.kept + "/g-20200102T000000-1.safetensors";
  std::ofstream(large) << "x";
  fs::resize_file(large, uint64_t{1} << 30);  // a sparse file
  std::ofstream(small) << "x";
  fs::last_write_time(large, fs::file_time_type::clock::now() - std::chrono::hours(2));
  fs::last_write_time(small, fs::file_time_type::clock::now() - std::chrono::hours(1));
  REQUIRE(u.run("").code == 0);
  CHECK_FALSE(fs::exists(large));
  CHECK(fs::exists(small));
  CHECK(u.copies().size() == 2);
}

TEST_CASE("kept weights: a read-only folder gives a note") {
  const Unsaved u;
  u.f.write("state", "a file");
  const Result r = u.run("");
  CHECK(r.code == 0);
  CHECK(has(r.err, "note: no copy of the weights was kept: "));
  const Result nowhere = harmonics_in("XDG_STATE_HOME= HOME=", "run " + u.flow + u.streams);
  CHECK(nowhere.code == 0);
  CHECK(has(nowhere.err, "note: no copy of the weights was kept: neither XDG_STATE_HOME nor HOME names a folder"));
  const Result home =
      harmonics_in("XDG_STATE_HOME=relative HOME='" + (u.f / "home") + "'", "run " + u.flow + u.streams);
  CHECK(home.code == 0);
  CHECK(has(home.err, "kept weights: " + (u.f / "home/.local/state/harmonics/kept/g-")));
}

TEST_CASE("kept weights: a run that fails by its data or numbers keeps the last good ones") {
  const Unsaved u;
  const std::string rows = read(u.f / "x.csv");
  const std::string flow = u.f.write(
      "mae.hmx",
      "harmonic g { producer x; producer y; layer o {1}; cycle (epochs 1, batch=1) { x -> o; o <-(mae)- y; } }\n");
  std::string large = rows;
  size_t at = 0;
  for (int row = 0; row < 9; ++row) at = large.find('\n', at) + 1;
  large.replace(at, large.find(',', at) - at, "1e38");
  const std::string common = "run " + flow + " --producer x=" + u.f.write("large.csv", large) +
                             " --producer 'y=" + (u.f / "y.csv") + "?shuffle=0' --optimizer 'sgd(lr=10)' ";
  const Result nan = harmonics_in(u.variables(), common);
  CHECK(nan.code == 1);
  const std::string path = named_by(nan.err, "kept weights: "), expected = u.f / "expected.safetensors";
  REQUIRE(harmonics(common + "--quiet --steps 9 --save " + expected).code == 0);
  CHECK(read(path) == read(expected));

  const std::string broken = "failing:broken?good=40&shuffle=0";
  const std::string free = u.f.write(
      "free.hmx",
      "harmonic g { producer x; producer y; layer o; cycle (epochs 1, batch=8) { x -(affine)-> o; o <-(mse)- y; } }\n");
  const Result data = harmonics_in(u.variables(), "run " + free + " --plugin " + HARMONICS_BINARY_DIR +
                                                      "/test_plugins/libexits.so --producer 'x=" + broken +
                                                      "' --producer 'y=" + broken + "'");
  CHECK(data.code == 74);
  CHECK(fs::exists(named_by(data.err, "kept weights: ")));
}

TEST_CASE("kept weights: a run stopped by control keeps a copy") {
  const Unsaved u;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    ::setenv("XDG_STATE_HOME", (u.f / "state").c_str(), 1);
    Background run(u.f, "run " + kLongRun + "--log " + (u.f / "l.jsonl") + " --log-every 1");
    ::setenv("XDG_STATE_HOME", kState.c_str(), 1);
    REQUIRE(run.await([&] { return !read(u.f / "l.jsonl").empty(); }));
    run.signal(signal);
    const Result r = run.end();
    CHECK(r.code == 128 + signal);
    CHECK(fs::exists(named_by(r.err, "kept weights: ")));
    fs::remove(u.f / "l.jsonl");
  }
}

TEST_CASE("kept weights: the second signal keeps those of the last step, whatever the run does meanwhile") {
  const Unsaved u;
  const std::string flow = u.f.write(
      "free.hmx",
      "harmonic g { producer x; producer y; consumer z; layer o; cycle (epochs 2, batch=8) { x -(affine)-> o -> z; o "
      "<-(mse)- y; } }\n");
  const std::string good = "failing:stop?good=1000&shuffle=0",
                    common = "run " + flow + " --plugin " + HARMONICS_BINARY_DIR +
                             "/test_plugins/libexits.so --producer 'x=" + good + "' --producer 'y=" + good + "' ";
  const std::string first = u.f / "first.safetensors", both = u.f / "both.safetensors", s = u.f / "s.safetensors";
  REQUIRE(harmonics(common + "--quiet --epochs 1 --consumer file:" + (u.f / "z.csv") + " --save " + first).code == 0);
  REQUIRE(harmonics(common + "--quiet --consumer file:" + (u.f / "z.csv") + " --save " + both).code == 0);
  const std::string validating = "--consumer file:" + (u.f / "z.csv") +
                                 " --validate x=failing:twice?good=50 --validate 'y=failing:stop?good=1000' ";

  const Result validated = harmonics_in(u.variables(), common + validating);
  CHECK(validated.code == 143);
  CHECK(read(named_by(validated.err, "kept weights: ")) == read(first));

  const Result saved = harmonics_in(u.variables(), common + validating + "--save " + s);
  CHECK(saved.code == 143);
  CHECK(read(s) == read(first));

  const Result ended = harmonics_in(u.variables(), common + "--consumer waiting:");
  CHECK(ended.code == 143);
  CHECK(read(named_by(ended.err, "kept weights: ")) == read(both));

  const size_t copies = u.copies().size();
  const Result none = harmonics_in(u.variables(), common + validating + "--no-keep");
  CHECK(none.code == 143);
  CHECK(u.copies().size() == copies);
}

TEST_CASE("kept weights: a folder of another user, one that others may write to, and a link are not used") {
  const Unsaved u;
  const std::string state = u.f / "state", program = state + "/harmonics";
  const auto refused = [&](const std::string& why) {
    const Result r = u.run("");
    CHECK(r.code == 0);
    CHECK(has(r.err, "note: the weights are not saved: --save FILE saves them; no copy will be kept: " + why + "\n"));
    CHECK(has(r.err, "note: no copy of the weights was kept: " + why + "\n"));
    CHECK_FALSE(has(r.err, "kept weights: "));
  };
  fs::create_directories(u.kept);
  for (const std::string& folder : {state, program, u.kept}) {
    REQUIRE(::chmod(folder.c_str(), 0777) == 0);
    refused("'" + folder + "' is writable by all users");
    REQUIRE(::chmod(folder.c_str(), 0700) == 0);
  }
  CHECK(u.copies().empty());

  const std::string elsewhere = u.f / "elsewhere";
  fs::create_directories(elsewhere + "/kept");
  fs::remove_all(u.kept);
  fs::create_directory_symlink(elsewhere, u.kept);
  refused("'" + u.kept + "' is a symbolic link, which is not followed");
  fs::remove_all(program);
  fs::create_directory_symlink(elsewhere, program);
  refused("'" + program + "' is a symbolic link, which is not followed");
  CHECK(fs::is_empty(elsewhere + "/kept"));
  fs::remove(program);

  if (::geteuid() != 0) {
    WARN("skipped: only root can make folders of another user");
    return;
  }
  fs::create_directories(u.kept);
  for (const std::string& folder : {u.kept, program, state}) {
    REQUIRE(::chown(folder.c_str(), 12345, 12345) == 0);
    refused("'" + folder + "' belongs to another user (number 12345)");
    REQUIRE(::chown(folder.c_str(), 0, 0) == 0);
  }
  CHECK(u.copies().empty());
  CHECK(u.run("").code == 0);
  CHECK(u.copies().size() == 1);
}
