// Samples dropped while joining streams: if the run is killed at any call or its disk fails, each is saved once, or a
// gap is reported.
#include "tests/faults/power_cut.hpp"

using namespace faults;

namespace {

// Returns the numbers in a file of frames from one process, read by the program itself.
std::vector<std::string> numbers_kept(const Folder& f, const std::string& file) {
  fs::remove(f / "kept.csv");
  if (!fs::exists(file)) return {};
  CHECK(journeys::harmonics("send file:" + (f / "kept.csv") + " --quiet --from 'file:" + file + "'").code == 0);
  std::vector<std::string> numbers;
  std::istringstream rows(read(f / "kept.csv"));
  for (std::string row; std::getline(rows, row);) numbers.push_back(row);
  return numbers;
}

// Pairs, some of them incomplete.
struct Pairs {
  Folder f;
  std::string dead = f / "dead", run;
  std::vector<std::string> whole;  // dropped by an undisturbed run

  Pairs() {
    f.write("pairs.hmx",
            "harmonic pairs { producer x; producer y; consumer cx; consumer cy; cycle { x -> cx; y -> cy; } }");
    std::string rows;
    for (int i = 0; i < 12; ++i) rows += std::to_string(i) + "\n";
    // x has all numbers. y starts with the same numbers and ends earlier.
    const std::string all = f.write("n.csv", rows), sent = f / "all.hxs", some = f / "some.hxs";
    REQUIRE(std::system(("'" + kProgram + "' send 'stdout:?format=hxs' --quiet --rate 50 --from 'v=file:" + all +
                         "?as=number' >'" + sent + "'")
                            .c_str()) == 0);
    const std::string frames = read(sent);
    std::string left;  // with every second frame removed
    size_t number = 0;
    for (size_t at = 0; at + 24 <= frames.size(); ++number) {
      uint32_t header = 0;
      uint64_t payload = 0;
      std::memcpy(&header, frames.data() + at + 8, sizeof header);
      std::memcpy(&payload, frames.data() + at + 12, sizeof payload);
      const size_t size = (24 + header + 7) / 8 * 8 + payload;
      if (number % 2 == 0) left += frames.substr(at, size);
      at += size;
    }
    REQUIRE(number > 3);
    f.write("some.hxs", left);
    run = "infer --untrained " + (f / "pairs.hmx") + " --producer 'x=file:" + sent + "' --producer 'y=file:" + some +
          "?join=number' --dead-letters " + (f / "dead") + " --consumer cx=file:" + (f / "x.csv") +
          " --consumer cy=file:" + (f / "y.csv") + " --quiet";
    REQUIRE(journeys::harmonics(run).code == 0);
    whole = numbers_kept(f, dead + "/x.hxs");
    REQUIRE(!whole.empty());
  }
  // Checks an undisturbed run after an interrupted one: it preserves the earlier samples and saves all of its own.
  void runs_again() const {
    const Result again = journeys::harmonics(run);  // from the beginning: it does not resume
    CHECK(again.code == 0);
    std::vector<std::string> kept = numbers_kept(f, dead + "/x.hxs");
    REQUIRE(kept.size() >= whole.size());
    CHECK(std::vector<std::string>(kept.end() - static_cast<std::ptrdiff_t>(whole.size()), kept.end()) == whole);
    kept.resize(kept.size() - whole.size());
    CHECK(std::equal(kept.begin(), kept.end(), whole.begin()));
  }
};

}  // namespace

TEST_CASE("dead letters: a run killed at any call, or a failing disk, saves each once or reports a gap") {
  const Pairs pairs;
  const Folder& f = pairs.f;
  const std::string& run = pairs.run;
  const std::string paired = read(f / "x.csv");
  const std::string what = GENERATE("kill", "tear", "EIO", "ENOSPC", "EINTR", "short");
  const size_t calls = at_every_call(
      {what, 0, f / "dead*", false, what == "EINTR" ? "open,write,sync,truncate" : ""}, [&](const Fault& fault) {
        fs::remove_all(f / "dead");
        const Result first = harmonics_in(variables(f, fault), run);
        if (struck_in(f).number == 0) return false;
        if (kills(what)) {
          CHECK(first.code == kKilled);
          pairs.runs_again();
          return true;
        }
        if (first.code != 0) {  // before the first sample
          CHECK((first.code == 73 || first.code == 74));
          CHECK(has(first.err, "--dead-letters names a directory"));
          return true;
        }
        CHECK(read(f / "x.csv") == paired);
        if (what == "EINTR" || what == "short")
          CHECK(numbers_kept(f, f / "dead/x.hxs") == pairs.whole);
        else
          CHECK(has(first.err, "unmatched and late samples are no longer kept in '" + (f / "dead") + "'"));
        return true;
      });
  CHECK(calls >= 5);
}

TEST_CASE("dead letters: any state after a power cut is readable, and the next run appends") {
  const Pairs pairs;
  const std::string disk = pairs.f / "disk";
  fs::remove_all(pairs.dead);
  std::string run = pairs.run;
  for (size_t at; (at = run.find(pairs.dead)) != std::string::npos;) run.replace(at, pairs.dead.size(), "DEAD");
  run.replace(run.find("DEAD"), 4, disk + "/dead");
  fs::create_directory(disk);
  REQUIRE(harmonics_in(traced(pairs.f, disk + ":" + disk + "/*"), run).code == 0);
  const PowerCuts cuts(pairs.f / "trace", disk);
  const size_t states = at_every_cut(
      cuts, [](size_t) { return 0; },
      [&](const Image& image, int) {
        lay_out(image, disk);
        fs::remove_all(pairs.dead);
        fs::create_directories(disk + "/dead");
        fs::rename(disk + "/dead", pairs.dead);
        pairs.runs_again();
      });
  CHECK(states > 5);
}
