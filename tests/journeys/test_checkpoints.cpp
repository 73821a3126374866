// Runs that are stopped, killed and resumed on the command line.
#include "tests/journeys/background.hpp"

using namespace journeys;

namespace {

const std::string kRun =
    "run " + kSamples +
    "mnist.hmx --producer 'synth:digits?size=1500&seed=1' --producer 'synth:digits?size=1500&seed=1#label' --batch 16 ";

size_t checkpoints_in(const std::string& folder) {
  size_t n = 0;
  if (fs::exists(folder))
    for (const auto& entry : fs::directory_iterator(folder))
      n += entry.path().filename().string().rfind("checkpoint-", 0) == 0;
  return n;
}

// Returns the command to resume, as printed by a stopped run.
std::string line_to_go_on(const std::string& err) {
  const size_t at = err.find("to continue:  ");
  REQUIRE(at != std::string::npos);
  return err.substr(at + 14, err.find('\n', at) - at - 14);
}

Result run_line(const std::string& line) {
  REQUIRE(line.rfind(kProgram + " ", 0) == 0);
  return harmonics(line.substr(kProgram.size() + 1));
}

}  // namespace

TEST_CASE("checkpoints: a second Ctrl-C writes a checkpoint at once, even within a step") {
  Folder f;
  std::string flow = read(kSamples + "mnist.hmx");
  flow.replace(flow.find("-(relu)-> input"), 9, "-(slow_down(seconds=10, after=20))->");
  const std::string slow = "run " + f.write("slow.hmx", flow) + kRun.substr(kRun.find(".hmx") + 4) + "--plugin " +
                           HARMONICS_BINARY_DIR + "/test_plugins/libslow_down.so ";
  Background run(f, slow + "--checkpoint " + (f / "runs") + " --every 1h");
  REQUIRE(run.await([&] { return has(run.errors(), "slow_down: it takes its time\n"); }));
  run.signal(SIGINT);
  run.signal(SIGTERM);  // two pending signals of one kind may merge
  const Result stopped = run.end();
  CHECK((stopped.code == 130 || stopped.code == 143));
  CHECK(has(stopped.err, " --resume"));
  CHECK(!has(stopped.err, "trained "));  // the current step was aborted
  CHECK(checkpoints_in(f / "runs") == 1);
  CHECK(harmonics("ckpt verify " + (f / "runs")).code == 0);
}

TEST_CASE("checkpoints: without --checkpoint Ctrl-C works as before") {
  Folder f;
  const std::string log = f / "l.csv";
  Background run(f, kRun + "--epochs 1000000 --save " + (f / "w.safetensors") + " --json --log-every 1 --log " + log);
  REQUIRE(run.await([&] { return fs::exists(log) && fs::file_size(log) > 300; }));
  run.signal(SIGINT);
  const Result stopped = run.end();
  CHECK(stopped.code == 130);
  CHECK(!has(stopped.err, "--resume"));
  CHECK(fs::exists(f / "w.safetensors"));
}

TEST_CASE("checkpoints: wrong uses of --checkpoint and --resume give an error with a remedy") {
  Folder f;
  const std::string runs = f / "runs";
  CHECK(harmonics(kRun + "--every 5m").err.find("error: --every has no effect without --checkpoint DIR\n") !=
        std::string::npos);
  const Result nowhere = harmonics(kRun + "--resume --quiet");
  CHECK(nowhere.code == 2);
  CHECK(nowhere.err ==
        "error: --resume needs a checkpoint\nhelp: give --checkpoint DIR, or --resume DIR, or --resume FILE\n");
  const Result often = harmonics(kRun + "--checkpoint " + runs + " --every often");
  CHECK(often.code == 2);
  CHECK(often.err ==
        "error: 'often' is not an interval\nhelp: write a time, steps or epochs: 5m, 90s, 500steps, 1epoch\n");
  fs::create_directories(f / "out/checkpoints");
  const Result empty = harmonics("ckpt list " + (f / "out"));
  CHECK(empty.code == 66);
  CHECK(empty.out.empty());
  CHECK(empty.err == "error: there is no checkpoint in '" + (f / "out") + "'\nhelp: those of 'train' are in '" +
                         (f / "out/checkpoints") + "'\n");
  const Result gone = harmonics(kRun + "--resume " + (f / "none"));
  CHECK(gone.code == 66);
  CHECK(gone.err == "error: cannot read '" + (f / "none") + "': No such file or directory\n");
  const Result early = harmonics(kRun + "--steps 3 --checkpoint " + runs + " --resume --json");
  CHECK(early.code == 0);
  CHECK(has(early.err, "note: there is no checkpoint in '" + runs + "' yet: starting at the beginning\n"));
  CHECK(has(early.out, "\"checkpoint\":\"" + runs + "/checkpoint-000001-step-3.safetensors\""));
  const Result again = harmonics(kRun + "--steps 3 --checkpoint " + runs);
  CHECK(again.code == 2);
  CHECK(again.err == "error: '" + runs +
                         "' holds the checkpoints of a run\n"
                         "help: add --resume to continue that run, or use another directory\n");
  const std::string flow =
      f.write("g.hmx", "harmonic g { producer x; layer s; consumer y; cycle { x -(relu)-> s -(identity)-> y; } }");
  const Result nothing =
      harmonics("run " + flow + " --producer " + f.write("in.csv", "1,2\n") + " --checkpoint " + (f / "other"));
  CHECK(nothing.code == 2);
  CHECK(has(nothing.err, "error: 'g' does not train: it has nothing to keep in a checkpoint\n"));
  const Result unwritable = harmonics(kRun + "--steps 3 --checkpoint /proc/nothing/here");
  CHECK(unwritable.code == 73);
  CHECK(unwritable.err ==
        "error: cannot write checkpoints to '/proc/nothing/here': No such file or directory\n"
        "help: give a folder that may be written\n");
  const Result weights = harmonics("infer " + kSamples + "mnist.hmx --weights " + runs +
                                   "/checkpoint-000001-step-3.safetensors --producer 'synth:digits?size=5' --quiet");
  CHECK(weights.code == 0);  // a checkpoint is also a weights file
}

TEST_CASE("checkpoints: a damaged newest checkpoint is skipped") {
  Folder f;
  const std::string runs = f / "runs";
  for (const char* steps : {"5", "10", "12"})
    REQUIRE(harmonics(kRun + "--quiet --checkpoint " + runs + " --resume --steps " + steps).code == 0);
  CHECK(checkpoints_in(runs) == 3);
  const std::string newest = runs + "/checkpoint-000003-step-12.safetensors";
  std::string bytes = read(newest);
  bytes[bytes.size() - 100] ^= 1;
  f.write("runs/checkpoint-000003-step-12.safetensors", bytes);
  const Result verified = harmonics("ckpt verify " + runs);
  CHECK(verified.code == 65);
  CHECK(has(verified.out, "'" + newest + "' is damaged: tensor '"));
  CHECK(has(verified.out, "/checkpoint-000002-step-10.safetensors: whole, "));
  const Result resumed = harmonics(kRun + "--steps 12 --json --checkpoint " + runs + " --resume");
  CHECK(resumed.code == 0);
  CHECK(number(resumed.out, "resumed_at") == 10);
  CHECK(has(resumed.err, "note: skipped a checkpoint: '" + newest + "' is damaged: tensor '"));
}

TEST_CASE("checkpoints: a full disk stops no run, which resumes from the last good checkpoint") {
  Folder f;
  const std::string runs = f / "runs";
  Background run(f, kRun + "--epochs 1000000 --checkpoint " + runs + " --every 4steps");
  REQUIRE(run.await([&] { return checkpoints_in(runs) > 1; }));
  run.limit_files(100 << 10);
  REQUIRE(run.await([&] { return has(run.errors(), "note: the checkpoint of step "); }));
  run.signal(SIGINT);
  const Result stopped = run.end();
  CHECK(stopped.code == 75);
  CHECK(has(stopped.err, "note: the checkpoint of step "));
  CHECK(has(stopped.err, ": File too large after "));
  CHECK(has(stopped.err, "; the last good one is " + runs + "/checkpoint-"));
  CHECK(has(stopped.err, "error: the last checkpoint was not written: cannot write '" + runs + "/checkpoint-"));
  const Result resumed = run_line(line_to_go_on(stopped.err) + " --steps 1");
  CHECK(resumed.code == 0);
  CHECK(has(resumed.err, "resuming from " + runs + "/checkpoint-"));
  for (const auto& entry : fs::directory_iterator(runs)) CHECK(entry.path().extension() != ".tmp");
}

TEST_CASE("checkpoints: ckpt and inspect show the contents and the differences of two") {
  Folder f;
  const std::string a = f / "a", b = f / "b";
  REQUIRE(harmonics(kRun + "--steps 4 --quiet --checkpoint " + a).code == 0);
  REQUIRE(harmonics(kRun + "--steps 8 --quiet --checkpoint " + a + " --resume").code == 0);
  REQUIRE(harmonics(kRun + "--steps 8 --quiet --threads 1 --checkpoint " + b + " --every 100steps").code == 0);
  const Result listed = harmonics("ckpt list " + a);
  CHECK(has(listed.out, " MB\n"));
  CHECK(listed.out.find('\n') == listed.out.find('\n', listed.out.find('\n') + 1) - listed.out.find('\n') - 1);
  CHECK(listed.code == 0);
  CHECK(has(listed.out, a + "/checkpoint-000002-step-8.safetensors"));
  CHECK(has(listed.out, a + "/checkpoint-000001-step-4.safetensors"));
  const Result json = harmonics("ckpt list " + a + " --json");
  CHECK(has(json.out, "\"step\":8,"));
  const Result shown = harmonics("ckpt show " + a);
  CHECK(has(shown.out, "  position    epoch 1, sample 128\n"));
  CHECK(has(shown.out, "  resumable   yes\n"));
  CHECK(harmonics("inspect " + a + "/checkpoint-000002-step-8.safetensors").out == shown.out);
  CHECK(harmonics("inspect " + a).out == shown.out);
  const Result same = harmonics("ckpt diff " + a + " " + b);
  CHECK(same.code == 0);
  CHECK(has(same.out, "tensors are bit-identical\n"));
  const Result other = harmonics("ckpt diff " + a + "/checkpoint-000001-step-4.safetensors " + b);
  CHECK(has(other.out, " numbers differ, by "));
  CHECK(has(harmonics("ckpt diff " + a + " " + b + " --json").out, "\"same_tensors\":true"));
  const Result unknown = harmonics("ckpt lst " + a);
  CHECK(unknown.code == 2);
  CHECK(
      unknown.err ==
      "error: 'harmonics ckpt' does not accept 'lst'\nhelp: did you mean 'list'?\nhelp: 'harmonics ckpt --help' shows "
      "what it takes\n");
  CHECK(harmonics("ckpt list " + (f / "none")).code == 66);
}
