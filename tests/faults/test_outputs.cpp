// Files a run writes besides checkpoints, and the result of the run if they cannot be written.
#include "tests/faults/faulted.hpp"

using namespace faults;

namespace {

std::string reason_of(const std::string& what) {
  return what == "EIO" ? "Input/output error" : "No space left on device";
}

// Returns the "step" and "epoch" rows without times and rates.
std::vector<std::string> rows_of(const std::string& csv) {
  std::vector<std::string> rows;
  std::istringstream lines(read(csv));
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
    std::string row;
    for (size_t i = 0; i < fields.size(); ++i)
      if (i != 4 && i != 5) row += fields[i] + ",";
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

TEST_CASE("saved weights: a run killed at any call leaves the old weights or the new ones") {
  Folder f;
  const Small small(f);
  const std::string weights = f / "out/w.safetensors", run = small.from_files() + "--quiet --save " + weights;
  fs::create_directory(f / "out");
  REQUIRE(journeys::harmonics(run).code == 0);
  const std::string saved = read(weights);
  REQUIRE(journeys::harmonics(small.from_files() + "--quiet --seed 4 --save " + weights).code ==
          2);  // the flag is repeated
  const std::string former = "what was there before";
  const std::string what = GENERATE("kill", "tear");
  const size_t calls = at_every_call({what, 0, f / "out/*"}, [&](const Fault& fault) {
    f.write("out/w.safetensors", former);
    const Result killed = harmonics_in(variables(f, fault), run);
    const Struck struck = struck_in(f);
    if (struck.number == 0) return false;
    CHECK(killed.code == kKilled);
    CHECK((read(weights) == former || read(weights) == saved));
    for (const std::string& name : names_in(f / "out"))
      CHECK((name == "w.safetensors" || (name[0] == '.' && name.ends_with(".tmp"))));
    CHECK(journeys::harmonics(run).code == 0);
    CHECK(read(weights) == saved);
    return true;
  });
  CHECK(calls > 6);
}

TEST_CASE("saved weights: weights that cannot be saved to their path are saved elsewhere") {
  Folder f;
  const Small small(f);
  const std::string weights = f / "out/w.safetensors", run = small.from_files() + "--quiet --save " + weights;
  fs::create_directory(f / "out");
  REQUIRE(journeys::harmonics(run).code == 0);
  const std::string saved = read(weights), former = "what was there before";
  const std::string what = GENERATE("EIO", "ENOSPC");
  const size_t calls = at_every_call({what, 0, f / "out/*"}, [&](const Fault& fault) {
    f.write("out/w.safetensors", former);
    const Result end = harmonics_in("cd '" + (f / "") + "' && " + variables(f, fault), run);
    const Struck struck = struck_in(f);
    if (struck.number == 0) return false;
    if (struck.call == "remove") {  // removes the file that tested the folder
      CHECK(end.code == 0);
      for (const std::string& name : names_in(f / "out"))
        if (name != "w.safetensors") fs::remove(f / ("out/" + name));
      return true;
    }
    CHECK(end.code == (what == "EIO" ? 74 : 73));
    CHECK(has(end.err, reason_of(what)));
    if (struck.number == 1) {  // the test of the folder, before the first step
      CHECK(has(end.err, "error: --save: cannot write"));
      CHECK(read(weights) == former);
    } else if (read(weights) != saved) {  // only the directory sync failed
      CHECK(read(weights) == former);
      CHECK(has(end.err, "the weights are in w.unsaved.safetensors: "));
      CHECK(read(f / "w.unsaved.safetensors") == saved);
      fs::remove(f / "w.unsaved.safetensors");
    }
    CHECK(names_in(f / "out").size() == 1);
    return true;
  });
  CHECK(calls > 6);
}

TEST_CASE("saved weights: without space in the working directory either, the temporary folder gets the weights") {
  Folder f;
  const Small small(f);
  const std::string weights = f / "w.safetensors", run = small.from_files() + "--quiet --save " + weights;
  REQUIRE(journeys::harmonics(run).code == 0);
  const std::string saved = read(weights);
  fs::remove(weights);
  fs::create_directory(f / "temporary");
  const std::string in = "cd '" + (f / "") + "' && TMPDIR='" + (f / "temporary") + "' ";
  const Result end = harmonics_in(in + variables(f, {"ENOSPC", 1, f / "[.w]*", true, "write"}), run);
  CHECK(end.code == 73);
  CHECK(has(end.err, "the weights are in " + (f / "temporary/w.unsaved.safetensors") + ": "));
  CHECK(read(f / "temporary/w.unsaved.safetensors") == saved);
  const Result nowhere = harmonics_in(in + variables(f, {"ENOSPC", 1, f / "*", true, "write"}),
                                      run + " --checkpoint " + (f / "temporary"));
  CHECK(nowhere.code == 73);
  CHECK(has(nowhere.err, "No space left on device"));
}

TEST_CASE("pictures and reports: a failed one affects neither the others nor the weights") {
  Folder f;
  const Small small(f);
  fs::create_directory(f / "out");
  const std::string run = small.from_files() + "--quiet --json --save " + (f / "w.safetensors") + " --plot " +
                          (f / "out/plot.svg") + " --report " + (f / "out/report.html");
  const std::string what = GENERATE("EIO", "ENOSPC", "kill", "short");
  std::set<std::string> missing;
  const size_t calls = at_every_call({what, 0, f / "out/*"}, [&](const Fault& fault) {
    fs::remove_all(f / "out");
    fs::create_directory(f / "out");
    fs::remove(f / "w.safetensors");
    const Result end = harmonics_in(variables(f, fault), run);
    const Struck struck = struck_in(f);
    // Both folders are tested before the first step by creating and removing a file.
    const bool tried = struck.number > 0 && struck.number <= 4 && (struck.call == "open" || struck.call == "remove");
    if (tried && what != "short" && (what == "kill" || struck.call == "open")) {
      CHECK_FALSE(fs::exists(f / "w.safetensors"));
      CHECK(end.code == (what == "kill" ? kKilled : what == "EIO" ? 74 : 73));
      return true;
    }
    CHECK(fs::exists(f / "w.safetensors"));
    if (what == "kill") return struck.number > 0;
    CHECK(has(end.out, "\"steps\":12"));
    if (tried) return true;
    if (struck.number == 0) return false;
    CHECK(end.code == (what == "short" ? 0 : what == "EIO" ? 74 : 73));
    CHECK(has(end.err, what == "short" ? "" : reason_of(what)));
    const std::set<std::string> names = names_in(f / "out");
    CHECK(names.size() >= (what == "short" ? 2 : 1));
    for (const char* name : {"plot.svg", "report.html"})
      if (!names.count(name)) missing.insert(name);
    return true;
  });
  CHECK(calls >= 6);
  CHECK(missing.size() == (what == "EIO" || what == "ENOSPC" ? 2 : 0));
}

TEST_CASE("logs: a run killed at any call and resumed has every row once, and complete") {
  Folder f;
  const Small small(f);
  const std::string run = small.from_files() + "--quiet --log-every 1 --log ";
  fs::create_directory(f / "out");
  const std::string log = f / "out/l.csv", kept = f / "kept";
  REQUIRE(journeys::harmonics(run + log).code == 0);
  const std::vector<std::string> whole = rows_of(log);
  REQUIRE(whole.size() == 15);  // names, 12 steps, 2 epochs
  const std::string what = GENERATE("kill", "tear"),
                    resumable = run + log + " --checkpoint " + kept + " --every 1h --resume";
  REQUIRE(journeys::harmonics(resumable + " --steps 5").code == 0);
  const std::string begun = read(log);
  fs::copy(kept, f / "begun");
  const size_t calls = at_every_call({what, 0, f / "out/*"}, [&](const Fault& fault) {
    fs::remove_all(kept);
    fs::copy(f / "begun", kept);
    // A row with a truncated step number looks like one of an earlier step.
    f.write("out/l.csv", begun + "step,1,1");
    const Result killed = harmonics_in(variables(f, fault), resumable);
    if (struck_in(f).number == 0) return false;
    CHECK(killed.code == kKilled);
    CHECK(journeys::harmonics(resumable).code == 0);
    CHECK(rows_of(log) == whole);
    return true;
  });
  CHECK(calls > 10);
}

TEST_CASE("logs: a failing log ends no run, and its missing rows are reported") {
  Folder f;
  const Small small(f);
  fs::create_directory(f / "out");
  const std::string what = GENERATE("ENOSPC", "EIO");
  const std::string log = GENERATE("--log out/l.csv", "--log out/l.jsonl", "--tensorboard out");
  const std::string run = small.from_files() + "--quiet --log-every 1 --save w.safetensors " + log,
                    in = "cd '" + (f / "") + "' && ";
  REQUIRE(harmonics_in(in, run).code == 0);
  const std::string weights = read(f / "w.safetensors");
  const size_t calls = at_every_call({what, 0, f / "out/*", false, "write"}, [&](const Fault& fault) {
    fs::remove_all(f / "out");
    fs::create_directory(f / "out");
    fs::remove(f / "w.safetensors");
    const Result end = harmonics_in(in + variables(f, fault), run);
    if (struck_in(f).number == 0) return false;
    if (fault.at == 1 && !has(log, ".jsonl")) {  // before the first step
      CHECK(end.code == (what == "EIO" ? 74 : 73));
      return true;
    }
    CHECK(end.code == 0);
    CHECK(read(f / "w.safetensors") == weights);
    CHECK(has(end.err, "note: cannot write out/"));
    CHECK(has(end.err, reason_of(what) + "; the run continues\n"));
    CHECK(has(end.err, reason_of(what) + "; the log lacks 1 row\n"));
    if (has(log, ".csv")) CHECK(rows_of(f / "out/l.csv").size() == 14);
    return true;
  });
  CHECK(calls >= 14);
}

TEST_CASE("logs: neither a full disk nor a torn log ends a run") {
  Folder f;
  const Small small(f);
  fs::create_directory(f / "out");
  const std::string log = f / "out/l.csv", run = small.from_files() + "--quiet --log-every 1 --log " + log;
  const Result full = harmonics_in(variables(f, {"ENOSPC", 5, f / "out/*", true, "write"}), run);
  CHECK(full.code == 0);
  CHECK(has(full.err, "No space left on device; the log lacks 11 rows\n"));
  CHECK(rows_of(log).size() == 4);
  // The disk is full after half of a row, which is removed again.
  const Result torn = harmonics_in(variables(f, {"short", 5, f / "out/*", true, "write"}), run);
  CHECK(torn.code == 0);
  CHECK(rows_of(log).size() == 15);
}

TEST_CASE("consumers: one that cannot be written stops a run after a checkpoint") {
  Folder f;
  const Small small(f);
  fs::create_directory(f / "out");
  std::string flow = read(f / "g.hmx");
  flow.replace(flow.find("layer h"), 0, "consumer c; ");
  flow.replace(flow.find("h -(affine)"), 0, "h -> c; ");
  f.write("g.hmx", flow);
  const std::string weights = f / "w.safetensors", kept = f / "kept";
  const std::string run = small.from_files() + "--quiet --save " + weights + " --consumer c=file:" + (f / "out/c.csv") +
                          " --checkpoint " + kept + " --every 1h --resume";
  REQUIRE(journeys::harmonics(run).code == 0);
  const std::string undisturbed = read(weights);
  const std::string what = GENERATE("EIO", "ENOSPC");
  const size_t calls = at_every_call({what, 0, f / "out/*", true, "write,sync"}, [&](const Fault& fault) {
    fs::remove_all(kept);
    fs::remove(weights);
    const Result end = harmonics_in(variables(f, fault), run);
    if (struck_in(f).number == 0) return false;
    CHECK(end.code == 75);
    CHECK(has(end.err, reason_of(what)));
    CHECK(has(end.err, "to continue:  "));
    CHECK(journeys::harmonics("ckpt verify " + kept).code == 0);
    CHECK(journeys::harmonics(run).code == 0);
    CHECK(read(weights) == undisturbed);
    return true;
  });
  CHECK(calls >= 1);
}

TEST_CASE("consumers: one that fails at the end of a run loses no weights") {
  Folder f;
  const Small small(f);
  fs::create_directory(f / "out");
  std::string flow = read(f / "g.hmx");
  flow.replace(flow.find("layer h"), 0, "consumer c; ");
  flow.replace(flow.find("h -(affine)"), 0, "h -> c; ");
  f.write("g.hmx", flow);
  const std::string weights = f / "w.safetensors";
  const std::string run = small.from_files() + "--quiet --save " + weights + " --consumer c=file:" + (f / "out/c.csv");
  REQUIRE(journeys::harmonics(run).code == 0);
  const std::string undisturbed = read(weights);
  const size_t calls = at_every_call({"ENOSPC", 0, f / "out/*", true, "sync,rename"}, [&](const Fault& fault) {
    fs::remove(weights);
    const Result end = harmonics_in(variables(f, fault), run);
    if (struck_in(f).number == 0) return false;
    CHECK(end.code == 73);
    CHECK(has(end.err, "No space left on device"));
    CHECK(read(weights) == undisturbed);
    return true;
  });
  CHECK(calls >= 1);
}
