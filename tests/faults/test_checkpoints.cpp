// Checkpoints: a run killed at any call, or with a failing disk, resumes to the weights of an undisturbed run.
#include "tests/faults/faulted.hpp"

using namespace faults;

namespace {

struct World {
  Folder f;
  Small small{f};
  std::string kept = f / "kept", weights = f / "w.safetensors", undisturbed;
  std::string run = small.from_files() + "--checkpoint " + kept + " --every 4steps --keep 2 --resume --save " + weights;

  World() {
    REQUIRE(journeys::harmonics(small.from_files() + "--quiet --save " + weights).code == 0);
    undisturbed = read(weights);
  }
  void begin_anew() {
    fs::remove_all(kept);
    fs::remove(weights);
  }
  // Resumes after any fault, without manual repair.
  void goes_on() {
    const Result rest = journeys::harmonics(run);
    CHECK(rest.code == 0);
    CHECK(!has(rest.err, "passed over"));  // every file with a checkpoint's name is valid
    CHECK(read(weights) == undisturbed);
    CHECK(unfinished_in(kept) == 0);
    CHECK(names_in(kept).size() <= 3);  // two checkpoints and the lock
  }
};

}  // namespace

TEST_CASE("checkpoints: a run killed at any call resumes to the same weights") {
  World w;
  const std::string what = GENERATE("kill", "tear");
  size_t writing = 0;
  const size_t calls = at_every_call({what, 0, w.kept + "*"}, [&](const Fault& fault) {
    w.begin_anew();
    const Result killed = harmonics_in(variables(w.f, fault), w.run);
    const Struck struck = struck_in(w.f);
    if (struck.number == 0) return false;
    CHECK(killed.code == kKilled);
    writing += unfinished_in(w.kept);
    w.goes_on();
    return true;
  });
  CHECK(calls > 10);  // of two checkpoints or more: open, write, sync, close, rename, sync of the folder
  CHECK(writing > 4);
}

TEST_CASE("checkpoints: interrupted and partial calls have no effect") {
  World w;
  const std::string what = GENERATE("EINTR", "short");
  const size_t calls =
      at_every_call({what, 0, w.kept + "*", false, "open,write,sync,truncate"}, [&](const Fault& fault) {
        w.begin_anew();
        const Result end = harmonics_in(variables(w.f, fault), w.run);
        CHECK(end.code == 0);
        CHECK(!has(end.err, "the checkpoint of step"));
        CHECK(read(w.weights) == w.undisturbed);
        return struck_in(w.f).number > 0;
      });
  CHECK(calls > 6);
}

TEST_CASE("checkpoints: a failed call ends no training run, and is reported") {
  World w;
  const std::string what = GENERATE("EIO", "ENOSPC");
  const size_t calls = at_every_call({what, 0, w.kept + "*"}, [&](const Fault& fault) {
    w.begin_anew();
    const Result end = harmonics_in(variables(w.f, fault), w.run);
    const Struck struck = struck_in(w.f);
    if (struck.number == 0) return false;
    CAPTURE(struck.call, struck.path);
    CHECK(has(end.err, what == "EIO" ? "Input/output error" : "No space left on device"));
    CHECK(unfinished_in(w.kept) == 0);
    if (end.code == 0) {
      CHECK((has(end.err, "the checkpoint of step 4 was not written: ") ||
             has(end.err, "the checkpoint of step 8 was not written: ")));
      CHECK(read(w.weights) == w.undisturbed);
    } else if (has(end.err, "the last checkpoint was not written")) {
      CHECK(end.code == 73);
      CHECK(read(w.weights) == w.undisturbed);
    } else {  // before the first step
      CHECK(end.code == (what == "EIO" ? 74 : 73));
      CHECK(has(end.err, "cannot write checkpoints to '" + w.kept + "'"));
      CHECK(!fs::exists(w.weights));
    }
    w.goes_on();
    return true;
  });
  CHECK(calls > 10);
}

TEST_CASE("checkpoints: a disk that is full from any call on loses no weights") {
  World w;
  const size_t calls = at_every_call({"ENOSPC", 0, w.kept + "*", true, "open,write,mkdir"}, [&](const Fault& fault) {
    w.begin_anew();
    const Result end = harmonics_in(variables(w.f, fault), w.run);
    if (struck_in(w.f).number == 0) return false;
    CHECK(end.code == 73);
    CHECK(has(end.err, "No space left on device"));
    CHECK((!has(end.err, "the last checkpoint was not written") || read(w.weights) == w.undisturbed));
    w.goes_on();
    return true;
  });
  CHECK(calls > 4);
}
