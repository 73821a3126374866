// Learned weights are never lost: outputs are checked before the first step, weights are saved before later stages,
// and a failed run leaves the last good weights.
#include "tests/journeys/shell.hpp"

#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

using namespace journeys;

namespace {

const std::string kPlugin = std::string(HARMONICS_BINARY_DIR) + "/test_plugins/libexits.so";

// Trains y = a - b in steps of four samples.
struct Line {
  Folder f;
  std::string flow, x, y, s;

  Line() {
    std::string xs, ys;
    for (int i = 0; i < 20; ++i)
      xs += std::to_string(0.1 * i) + "," + std::to_string(0.5 - 0.05 * i) + "\n",
          ys += std::to_string(0.15 * i - 0.5) + "\n";
    flow = f.write(
        "g.hmx",
        "harmonic g { producer x; producer y; layer o {1}; cycle (epochs 2, batch=4) { x -> o; o <-(mse)- y; } }\n");
    x = f.write("x.csv", xs);
    y = f.write("y.csv", ys);
    s = f / "w.safetensors";
  }
  Result run(const std::string& more) const {
    return harmonics("run " + flow + " --producer x=" + x + " --producer y=" + y + " " + more);
  }
  bool saved() const { return fs::exists(s); }
};

bool trained(const Result& r) { return has(r.err, "epoch 1"); }

void expect_schema(const std::string& verb, const std::string& line) {
  for (const std::string& wrong : SchemaCheck::run(schema(verb), json::parse(line))) FAIL_CHECK(wrong);
}

// Replaces one number of the data by one that overflows.
std::string with_large(const std::string& rows, int row) {
  std::string text;
  size_t at = 0;
  for (int i = 0; at < rows.size(); ++i) {
    const size_t end = rows.find('\n', at);
    text += (i == row ? "1e38" : "0") + rows.substr(rows.find(',', at), end + 1 - rows.find(',', at));
    at = end + 1;
  }
  return text;
}

}  // namespace

TEST_CASE("saved weights: outputs that cannot be written are refused before the first step") {
  const Line line;
  const std::string tests = " --test x=" + line.x + " --test y=" + line.y;
  for (const char* flag : {"--save", "--report", "--plot", "--confusion"}) {
    const Result none = line.run(std::string(flag) + " " + (line.f / "none/file") + tests);
    CHECK(none.code == 73);
    CHECK(none.err == "error: " + std::string(flag) + ": cannot write '" + (line.f / "none/file") +
                          "': there is no folder '" + (line.f / "none") + "'\nhelp: make it first: mkdir -p '" +
                          (line.f / "none") + "'\n");
    const Result folder = line.run(std::string(flag) + " " + (line.f / "") + tests);
    CHECK(folder.code == 73);
    CHECK(has(folder.err, "it is a folder"));
    CHECK_FALSE(trained(folder));
    const Result kernel = line.run(std::string(flag) + " /proc/file" + tests);
    CHECK(kernel.code == 73);
    CHECK_FALSE(trained(kernel));
  }
  for (const std::string& flags : {"--log " + (line.f / "none/m.csv"), std::string("--tensorboard /proc/events"),
                                   std::string("--consumer file:/proc/o.csv")}) {
    const Result r = line.run(flags);
    CHECK(r.code == 73);
    CHECK_FALSE(trained(r));
  }
  for (const auto& entry : fs::directory_iterator(line.f / ""))
    CHECK(entry.path().filename().string()[0] != '.');  // the test file was removed
}

TEST_CASE("saved weights: unusable test data are refused before the first step") {
  const Line line;
  const std::string wide = line.f.write("wide.csv", "1,2,3\n1,2,3\n"), few = line.f.write("few.csv", "1.5\n2.5\n");
  const Result shape = line.run("--save " + line.s + " --test x=" + wide + " --test y=" + line.y);
  CHECK(shape.code == 65);
  CHECK(has(shape.err, "the test samples of 'x' are f32[3], but the graph was trained on f32[2]"));
  CHECK_FALSE(trained(shape));
  const Result length = line.run("--save " + line.s + " --test x=" + line.x + " --test y=" + few + "?unpaired=refuse");
  CHECK(length.code == 65);
  CHECK(has(length.err, "stream 'y' ends after 2 samples, 'x' has 20 samples"));
  CHECK_FALSE(trained(length));
  for (const char* flag : {"--test", "--validate"}) {
    const std::string bound = std::string(flag) + " x=" + line.x + " " + flag + " y=" + few;
    const Result left = line.run("--save " + line.s + " " + bound);
    CHECK(left.code == 0);
    const size_t said = left.err.find(std::string("note: ") + (flag[2] == 't' ? "test" : "validation") +
                                      ": streams of different length: 'x' has 20 samples, 'y' has 2 samples");
    REQUIRE(said != std::string::npos);
    CHECK(said < left.err.find("epoch 1"));
  }
  const Result half = line.run("--save " + line.s + " --test x=" + line.x);
  CHECK(half.code == 2);
  CHECK(has(half.err, "producer 'y' has no test data"));
  CHECK_FALSE(trained(half));
}

TEST_CASE("saved weights: unusable validation data are refused before the first step of the first cycle") {
  const Line line;
  const std::string wide = line.f.write("wide.csv", "1,2,3\n1,2,3\n");
  const std::string flow = line.f.write("two.hmx",
                                        "harmonic g { producer x; producer y; layer o {1}; layer p {1}; cycle (epochs "
                                        "1, batch=4) { x -> o; o <-(mse)- y; } cycle (epochs 1, batch=4) { x -> p; p "
                                        "<-(mse)- y; } }\n");
  const std::string run = "run " + flow + " --producer x=" + line.x + " --producer y=" + line.y + " --save " + line.s;
  for (const char* flag : {" --validate ", " --test "}) {
    const Result shape = harmonics(run + flag + "x=" + wide + flag + "y=" + line.y);
    CHECK(shape.code == 65);
    CHECK(has(shape.err, "samples of 'x' are f32[3], but the graph was trained on f32[2]"));
    CHECK_FALSE(trained(shape));
  }
}

TEST_CASE("saved weights: are written before the test, and when the test or the data fail late") {
  const Line line;
  const std::string bad = "failing:broken?good=", plugin = " --plugin " + kPlugin;
  const std::string flow = line.f.write(
      "two.hmx",
      "harmonic g { producer x; producer y; layer o; cycle (epochs 1, batch=8) { x -(affine)-> o; o <-(mse)- y; } }\n");
  const std::string good = "failing:stop?good=1000&shuffle=0",
                    both = " --producer 'x=" + good + "' --producer 'y=" + good + "'";
  const Result late = harmonics("run " + flow + plugin + both + " --test x=" + bad + "20 --test y=" + bad +
                                "20 --json --save " + line.s + " --report " + (line.f / "r.html"));
  CHECK(late.code == 74);
  CHECK(has(late.err, "the other side says no"));
  CHECK(line.saved());
  CHECK_FALSE(has(late.err, "skipped"));
  CHECK(fs::exists(line.f / "r.html"));
  CHECK(has(late.out, "\"steps\":8"));
  CHECK(has(late.out, "\"test\":null"));

  fs::remove(line.s);
  const std::string broken = "failing:broken?good=40&shuffle=0";
  const Result data = harmonics("run " + flow + plugin + " --producer 'x=" + broken + "' --producer 'y=" + broken +
                                "' --json --save " + line.s);
  CHECK(data.code == 74);
  CHECK(line.saved());
  CHECK(has(data.out, "\"steps\":5,"));
  CHECK(has(data.out, "\"stopped_by\":\"error\""));

  // Weights of earlier cycles are kept if a later one fails before its first step.
  fs::remove(line.s);
  const std::string second =
      line.f.write("second.hmx",
                   "harmonic g { producer x; producer y; producer z; layer o; layer p; cycle (epochs 1, batch=8) { x "
                   "-(affine)-> o; o "
                   "<-(mse)- y; } cycle (epochs 1, batch=8) { z -(affine)-> p; p <-(mse)- y; } }\n");
  const Result later =
      harmonics("run " + second + plugin + both + " --producer z=failing:broken --json --save " + line.s);
  CHECK(later.code == 74);
  CHECK(line.saved());
  CHECK(has(later.out, "\"steps\":8"));

  // The examples on the page come from the failing data.
  const Result page = harmonics("run " + flow + plugin + " --producer 'x=" + broken + "' --producer 'y=" + broken +
                                "' --quiet --report " + (line.f / "page.html"));
  CHECK(page.code == 74);
  CHECK(page.err == "error: stream 'x': the other side says no\nhelp: ask it again later\n");
  CHECK(has(read(line.f / "page.html"), "ended by an error"));
}

TEST_CASE("saved weights: after non-finite weights those of the step before are saved, and all outputs agree") {
  const Line line;
  const std::string flow = line.f.write(
      "mae.hmx",
      "harmonic g { producer x; producer y; layer o {1}; cycle (epochs 1, batch=1) { x -> o; o <-(mae)- y; } }\n");
  const std::string rows = read(line.x);
  const auto run = [&](int row, const std::string& more) {
    const std::string x = line.f.write("large.csv", with_large(rows, row));
    return harmonics("run " + flow + " --producer x=" + x + " --producer 'y=" + line.y +
                     "?shuffle=0' --optimizer 'sgd(lr=10)' " + more);
  };
  const std::string expected = line.f / "expected.safetensors";
  for (const int row : {9, 19}) {
    const std::string runs = line.f / ("runs" + std::to_string(row)), report = line.f / "r.html";
    const Result r = run(row, "--json --save " + line.s + " --checkpoint " + runs + " --report " + report);
    CHECK(r.code == 1);
    CHECK(has(r.err, "step " + std::to_string(row + 1) + " had a finite loss but made 'x.o.affine.weight' infinite"));
    CHECK(has(r.err, "the weights are those after step " + std::to_string(row) + ", all finite"));
    CHECK(
        has(r.err, "the last checkpoint: " + runs + "/checkpoint-000001-step-" + std::to_string(row) + ".safetensors"));
    CHECK(has(r.out, "\"stopped_by\":\"not finite\""));
    CHECK(has(r.out, "\"steps\":" + std::to_string(row) + ","));
    expect_schema("run", r.out);
    CHECK(has(read(report), "a value was not finite"));
    REQUIRE(run(row, "--quiet --save " + expected + " --steps " + std::to_string(row)).code == 0);
    CHECK((read(line.s) == read(expected)));
    fs::remove(line.s);
    fs::remove(report);
  }
  // Nothing was learned: the file of an earlier run remains.
  line.f.write("w.safetensors", "of an earlier run");
  CHECK(run(0, "--save " + line.s).code == 1);
  CHECK(read(line.s) == "of an earlier run");
}

TEST_CASE("saved weights: the error for non-finite loaded weights names their file") {
  const Line line;
  REQUIRE(line.run("--quiet --save " + line.s).code == 0);
  std::string bytes = read(line.s);
  bytes.replace(bytes.size() - 4, 4, std::string("\0\0\x80\x7f", 4));
  for (size_t at; (at = bytes.find("harmonics.checksum")) != std::string::npos;)
    bytes[at + 10] = 'C';  // as if another program had written it
  const std::string bad = line.f.write("bad.safetensors", bytes);
  const Result r = line.run("--weights " + bad);
  CHECK(r.code == 1);
  CHECK(has(r.err, "was not finite in " + bad + " already"));
  CHECK_FALSE(has(r.err, "learning rate"));
}

TEST_CASE("figures: a test or validation without a finite loss is null in JSON, and a failure") {
  const Line line;
  const std::string large = line.f.write("large.csv", with_large(read(line.x), 3));
  for (const std::string& flag : {std::string("--test"), std::string("--validate")}) {
    const Result r = line.run("--json --save " + line.s + " " + flag + " x=" + large + " " + flag + " y=" + line.y);
    CHECK(r.code == 1);
    CHECK(
        has(r.err, std::string("error: the loss of the ") + (flag == "--test" ? "test" : "validation") + " is inf\n"));
    CHECK(line.saved());
    CHECK_FALSE(has(r.out, "nfinity"));
    expect_schema("run", r.out);
    CHECK(has(r.out, flag == "--test" ? "\"test_loss\":null" : "\"validation\":{\"loss\":null"));
    fs::remove(line.s);
  }
  const Result none = line.run("--json --quiet --epochs 0");
  CHECK(none.code == 0);
  CHECK(has(none.out, "\"loss\":null"));
  expect_schema("run", none.out);
}

TEST_CASE("figures: a test or validation with all positions ignored measures nothing, and is not a failure") {
  Folder f;
  const std::string flow = f.write("g.hmx",
                                   "harmonic g { producer x; producer y {3}; layer o {3}; cycle (epochs 2, batch=2) { "
                                   "x -> o; o <-(cross_entropy(ignore_index=0))- y; } }\n");
  const std::string x = f.write("x.csv", "0.1,0.2\n0.3,0.4\n0.5,0.6\n0.7,0.8\n");
  const std::string y = f.write("y.csv", "1\n2\n0\n1\n"), ignored = f.write("ignored.csv", "0\n0\n0\n0\n");
  for (const std::string& flag : {std::string("--test"), std::string("--validate")}) {
    const Result r = harmonics("run " + flow + " --producer x=" + x + " --producer y=" + y + " " + flag + " x=" + x +
                               " " + flag + " y=" + ignored + " --json --quiet");
    INFO(r.err);
    CHECK(r.code == 0);
    expect_schema("run", r.out);
    CHECK(has(r.out, flag == "--test" ? "\"test_loss\":null" : "\"validation\":{"));
  }
}

TEST_CASE("stop: within the validation of a cycle its weights are saved, and the next cycle does not begin") {
  const Folder f;
  const std::string data = "failing:stop?good=1000&shuffle=0", stops = "failing:stop?good=50";
  const std::string bound = " --plugin " + kPlugin + " --producer 'x=" + data + "' --producer 'y=" + data +
                            "' --validate x=" + stops + " --validate y=" + data.substr(0, data.find('&')) + " --json";
  const std::string cycle = "cycle (epochs 1, batch=8) { x -(affine)-> o; o <-(mse)- y; } ";
  const std::string head = "harmonic g { producer x; producer y; layer o; ";
  const Result one =
      harmonics("run " + f.write("one.hmx", head + cycle + "}\n") + bound + " --save " + (f / "one.safetensors"));
  CHECK(one.code == 143);
  CHECK(has(one.out, "\"stopped_by\":\"interrupt\""));
  CHECK(has(one.out, "\"validation_step\":null"));
  CHECK(fs::exists(f / "one.safetensors"));
  const Result two = harmonics("run " + f.write("two.hmx", head + cycle + cycle + "}\n") + bound + " --save " +
                               (f / "two.safetensors"));
  CHECK(two.code == 143);
  CHECK(has(two.out, "\"stopped_by\":\"interrupt\""));
  CHECK(number(two.out, "steps") == 8);
  CHECK(fs::exists(f / "two.safetensors"));
}

TEST_CASE("commands: printed commands contain no secrets") {
  const Folder f;
  const std::string flow =
      f.write("g.hmx", "harmonic g { producer x; producer y; layer o; cycle { x -(affine)-> o; o <-(mse)- y; } }\n");
  const std::string data = "failing:broken?good=40&shuffle=0";
  for (const char* token : {"--token open-sesame", "--token=open-sesame"}) {
    const Result r = harmonics("run " + flow + " --plugin " + kPlugin + " --producer 'x=" + data +
                               "' --producer 'y=" + data + "' --batch 8 --serve 127.0.0.1:0 " + token +
                               " --checkpoint " + (f / "runs") + " --report " + (f / "r.html"));
    CHECK(r.code == 75);
    CHECK(has(r.err, "to continue: "));
    CHECK(has(r.err, token[7] == '=' ? "--token=TOKEN" : "--token TOKEN"));
    CHECK_FALSE(has(r.err, "open-sesame"));
    CHECK_FALSE(has(read(f / "r.html"), "open-sesame"));
    fs::remove_all(f / "runs");
  }
}

TEST_CASE("commands: printed commands contain no passwords and tokens of addresses") {
  const Folder f;
  const std::string flow =
      f.write("g.hmx", "harmonic g { producer x; producer y; layer o; cycle { x -(affine)-> o; o <-(mse)- y; } }\n");
  const std::string secret = "failing://anna:open-sesame@broken?good=40&token=open-sesame&shuffle=0",
                    shown = "failing://anna:PASSWORD@broken?good=40&token=SECRET&shuffle=0";
  const Result r =
      harmonics("run " + flow + " --plugin " + kPlugin + " --producer 'x=" + secret + "' --producer 'y=" + secret +
                "' --batch 8 --checkpoint " + (f / "runs") + " --report " + (f / "r.html"));
  CHECK(r.code == 75);
  const size_t line = r.err.find("to continue: ");
  REQUIRE(line != std::string::npos);
  CHECK(has(r.err.substr(line), "x=" + shown));
  CHECK(has(r.err.substr(line), "y=" + shown));
  CHECK_FALSE(has(r.err, "open-sesame"));
  CHECK_FALSE(has(read(f / "r.html"), "open-sesame"));
}
